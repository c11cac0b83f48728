#include "polyphase/resample/pick.h"
#include "polyphase/resample/sampler.h"

using namespace polyphase;

extern "C" __attribute__((visibility("default"))) const auto polyphase_sampler = sampler<MovingSampler<TapArithmetic::kFloat32>>();
