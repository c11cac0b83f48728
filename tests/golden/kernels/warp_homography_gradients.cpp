#include "polyphase/warp/gradients.h"

namespace polyphase {

struct Formula {
  static constexpr bool kExists = true;
  static constexpr int kEntries = 9, kNumbers = 0, kFields = 0, kFirstField = 0;

  template <class P>
  static void coordinates(const FormulaTile<P>& at, TileOf<P> (&out)[2]) {
    const P base0 = at.base[0];
    const P entry0 = at.entries[0];
    const P entry1 = at.entries[1];
    const P entry2 = at.entries[2];
    const P entry3 = at.entries[3];
    const P entry4 = at.entries[4];
    const P entry5 = at.entries[5];
    const P entry6 = at.entries[6];
    const P entry7 = at.entries[7];
    const P entry8 = at.entries[8];
#pragma GCC ivdep
    for (int i = 0; i < kTile; ++i) {
      const P base1 = at.row_base.at[i];
      const P common0 = (((entry6 * base1) + (entry7 * base0)) + entry8);
      out[0].at[i] = ((((entry0 * base1) + (entry1 * base0)) + entry2) / common0);
      out[1].at[i] = ((((entry3 * base1) + (entry4 * base0)) + entry5) / common0);
    }
  }

  template <class P, class OfEntry, class OfField>
  static void gradients(const FormulaTile<P>& at, const TileOf<P> (&given)[2], OfEntry entry, OfField field) {
    TileOf<P> shares[9];
    const P base0 = at.base[0];
    const P entry0 = at.entries[0];
    const P entry1 = at.entries[1];
    const P entry2 = at.entries[2];
    const P entry3 = at.entries[3];
    const P entry4 = at.entries[4];
    const P entry5 = at.entries[5];
    const P entry6 = at.entries[6];
    const P entry7 = at.entries[7];
    const P entry8 = at.entries[8];
#pragma GCC ivdep
    for (int i = 0; i < kTile; ++i) {
      const P base1 = at.row_base.at[i];
      const P common0 = (((entry6 * base1) + (entry7 * base0)) + entry8);
      const P common1 = (base1 / common0);
      const P common2 = (base0 / common0);
      const P common3 = (P(1.0) / common0);
      const P common4 = ((((entry0 * base1) + (entry1 * base0)) + entry2) / common0);
      const P common5 = ((((entry3 * base1) + (entry4 * base0)) + entry5) / common0);
      shares[0].at[i] = share_of(given[0].at[i], common1);
      shares[1].at[i] = share_of(given[0].at[i], common2);
      shares[2].at[i] = share_of(given[0].at[i], common3);
      shares[3].at[i] = share_of(given[1].at[i], common1);
      shares[4].at[i] = share_of(given[1].at[i], common2);
      shares[5].at[i] = share_of(given[1].at[i], common3);
      shares[6].at[i] = share_of(given[0].at[i], (-((common4 * base1)) / common0)) + share_of(given[1].at[i], (-((common5 * base1)) / common0));
      shares[7].at[i] = share_of(given[0].at[i], (-((common4 * base0)) / common0)) + share_of(given[1].at[i], (-((common5 * base0)) / common0));
      shares[8].at[i] = share_of(given[0].at[i], (-(common4) / common0)) + share_of(given[1].at[i], (-(common5) / common0));
    }
    for (int e = 0; e < kEntries; ++e) entry(e, shares[e].at);
    for (int f = 0; f < kFields; ++f) field(f, shares[kEntries + f].at);
  }
};

using Run = WarpGradients<Unchanged<float>, Linear, float, float, 2, Formula>;

}  // namespace polyphase

extern "C" __attribute__((visibility("default"))) const auto polyphase_kernel = polyphase::Run::kernel();
