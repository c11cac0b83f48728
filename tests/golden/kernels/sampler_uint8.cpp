#include "polyphase/resample/quantised.h"
#include "polyphase/resample/sampler.h"

using namespace polyphase;

extern "C" __attribute__((visibility("default"))) const auto polyphase_sampler = sampler<QuantisedSampler>();
