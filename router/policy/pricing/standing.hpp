// How a rank stands, read where it is kept: what `build_view` in `router.placement.views` makes a view of.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "read.hpp"

namespace dovecote::pricing {

//: Where the figures of all ranks are kept: `Ledger`, `LiveSessions` and `WorkerPaces`, as they are now.
struct Sources {
  Sources(nb::handle ledger, nb::handle live, nb::handle paces, double now_s);
  // What another router told, and when that came.
  struct Word {
    nb::dict ranks;
    double told_at_s;
  };
  nb::dict accounts, live_sums, ratios;
  nb::object usual_ratios;
  std::vector<Word> words;
  double now_s;
};

//: What is taken as given where nothing was measured: of `router.config.policy.Coefficients`.
struct Givens {
  explicit Givens(nb::handle coefficients);
  Count foreign_request_tokens;
  double reuse_probability, reuse_decay_s;
};

// Writes what does not depend on the question; false where a figure is beyond the bounds, or is none.
bool read_standing(const Sources& sources, const Givens& givens, nb::handle standing, Rank& rank);

}  // namespace dovecote::pricing
