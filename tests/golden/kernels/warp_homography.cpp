#include "polyphase/warp/warp.h"

namespace polyphase {

struct Formula {
  static constexpr bool kExists = true, kReadsBase = true;
  static constexpr int kEntries = 9, kNumbers = 0, kFields = 0, kFirstField = 0;

  template <class Pixel, class P>
  static __attribute__((always_inline)) void coordinates(const Pixel& at, P (&out)[2]) {
    const P base0 = at.template base<0>();
    const P base1 = at.template base<1>();
    const P entry0 = at.template entry<0>();
    const P entry1 = at.template entry<1>();
    const P entry2 = at.template entry<2>();
    const P entry3 = at.template entry<3>();
    const P entry4 = at.template entry<4>();
    const P entry5 = at.template entry<5>();
    const P entry6 = at.template entry<6>();
    const P entry7 = at.template entry<7>();
    const P entry8 = at.template entry<8>();
    const P common0 = (((entry6 * base1) + (entry7 * base0)) + entry8);
    out[0] = ((((entry0 * base1) + (entry1 * base0)) + entry2) / common0);
    out[1] = ((((entry3 * base1) + (entry4 * base0)) + entry5) / common0);
  }
};

using Run = Warp<Unchanged<float>, Linear, float, float, 2, Unchanged<float>, Formula>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
