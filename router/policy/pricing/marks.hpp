// What a question says of single ranks, written into their rows for as long as it is answered.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <vector>

#include "table.hpp"

namespace dovecote::pricing {

class Marks {
 public:
  explicit Marks(const std::vector<Table*>& tables) : tables_(tables) {}
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Tokens of the prompt by rank, as `bound_overlap` in `router.placement.views` has them.
  void hold(const nb::dict& confirmed, const nb::dict& expected, Count prompt_tokens, double credit_ratio);
  void exclude(nb::handle targets);
  // Costs by term that were reckoned elsewhere.
  void give(nb::handle target, const Costs& costs);

 private:
  Rank* mark(nb::handle target);

  const std::vector<Table*>& tables_;
  std::vector<Rank*> marked_;
  std::deque<Costs> given_;
};

}  // namespace dovecote::pricing
