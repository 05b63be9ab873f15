// The ranks of a pool in numbers, each written when it changes and read by every question.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "standing.hpp"

namespace dovecote::pricing {

class Table {
 public:
  // Ranks with the number that stands for each in a tie, in the order in which they are told of.
  Table(const nb::list& targets, const nb::list& hashes, nb::handle coefficients);

  // Writes ranks anew from where their figures are kept. Returns those that have to be priced in Python.
  nb::list write(nb::handle standings, nb::handle ledger, nb::handle live, nb::handle paces, double now_s);

  nb::list targets() const { return targets_; }
  std::vector<Rank>& ranks() { return ranks_; }
  nb::object target(std::size_t row) const { return targets_[row]; }
  // Null where it is none of them.
  Rank* find(nb::handle target);

 private:
  nb::list targets_;
  nb::dict rows_;
  Givens givens_;
  std::vector<Rank> ranks_;
};

}  // namespace dovecote::pricing
