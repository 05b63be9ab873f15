// The ranks of a pool in numbers, each written when it changes and read by every question.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "read.hpp"

namespace dovecote::pricing {

class Table {
 public:
  // Ranks with the number that stands for each in a tie, in the order in which they are told of.
  Table(const nb::list& targets, const nb::list& hashes);

  // Writes a rank: what a policy sees of it, and what its wait follows from. False where it has to be priced in Python.
  bool put(nb::handle target, nb::handle view, const nb::tuple& own, const nb::tuple& told, const nb::tuple& foreign);

  nb::list targets() const { return targets_; }
  std::vector<Rank>& ranks() { return ranks_; }
  nb::object target(std::size_t row) const { return targets_[row]; }
  // Null where it is none of them.
  Rank* find(nb::handle target);

 private:
  nb::list targets_;
  nb::dict rows_;
  std::vector<Rank> ranks_;
};

}  // namespace dovecote::pricing
