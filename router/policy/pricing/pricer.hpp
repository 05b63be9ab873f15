// One cost policy before the tables of a question: who is chosen, and what that rests on.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "market.hpp"
#include "table.hpp"

namespace dovecote::pricing {

//: What is asked of the ranks of some tables.
struct Question {
  std::vector<Table*> tables;
  Asked asked;
  //: Tokens of the prompt by rank: confirmed, and expected of requests being prefilled; the share that is believed.
  nb::dict confirmed, expected;
  double credit_ratio;
};

class Pricer {
 public:
  // Weights and coefficients of the policy; `window` as (TIE_S, TIE_RATIO), `draw` as `ties.draw`.
  Pricer(nb::handle weights, nb::handle coefficients, const nb::tuple& window, nb::object draw);

  // The choice among all ranks but the excluded; `given` are costs by term of those that were priced in Python. None
  // where Python has to be asked: some cost is no number, some figure beyond the bounds. Told of are the home, the
  // chosen and the `few` cheapest: all, where there are so few.
  nb::object choose(const nb::list& tables, nb::handle query, nb::handle confirmed, nb::handle expected,
                    double credit_ratio, double now_s, nb::handle excluded, const nb::dict& given, nb::handle seed,
                    std::size_t few) const;
  // The home alone, where no other rank can cost as little by its prefill, with what `expected` says of those that hold
  // most; None where one can.
  nb::object choose_home(const nb::list& tables, nb::handle query, nb::handle confirmed, nb::handle expected,
                         double credit_ratio, double now_s, double least_prefill_ratio) const;

 private:
  bool read(Question& question, const nb::list& tables, nb::handle query, double now_s) const;
  Costs read_costs(nb::handle row) const;
  nb::object tell(const Question& question, const Market& market, std::size_t chosen, std::size_t tied,
                  const std::vector<std::size_t>& shown) const;
  std::size_t break_tie(const Question& question, const Market& market, const std::vector<std::size_t>& tied,
                        nb::handle seed) const;

  Costs weights_;
  Coefficients costs_;
  TieWindow window_;
  nb::object draw_;
};

}  // namespace dovecote::pricing
