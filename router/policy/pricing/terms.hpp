// The terms of the cost policy: each says what its namesake in `router/policy/` says, in the same order of operations,
// so that costs are equal to the last bit. There stands why.
#pragma once

#include <array>
#include <cstddef>

#include "numbers.hpp"

namespace dovecote::pricing {

//: `router.config.policy.Coefficients`, as far as terms need them.
struct Coefficients {
  double prefill_s_per_token, attention_s_per_token_pair, decode_step_s, decode_s_per_request;
  double decode_s_per_full_cache, decode_s_per_context_token;
  double future_turns, rebalance_ratio, crowding_ratio, working_set_factor;
  Count max_copies;
};

enum Term : std::size_t { kWait, kAdmission, kReuse, kStall, kDecode, kReturns, kBalance, kSettle, kSpread, kTerms };

//: Seconds by term.
using Costs = std::array<double, kTerms>;

//: `router.policy.base.Seat`: seconds ahead on a rank, to what the prompt needs, until there is room for it.
struct Seat {
  double wait_s, reuse_s, admission_s;
};

//: One query before one rank after the other.
class Pricing {
 public:
  Pricing(const Costs& weights, const Coefficients& costs, const Query& query);

  // Seconds by term, weights applied; those of terms without a weight are 0.
  Costs weigh(const Rank& rank, bool is_home) const;
  // Their sum, which is compared.
  double total_s(const Rank& rank, bool is_home) const;
  // What a request meets on a rank, weights left out.
  Seat seat(const Rank& rank) const;
  // What any rank costs at least that holds so much at most, at a worker's pace.
  double least_s(Count held_tokens, double prefill_ratio) const;

 private:
  double prefill_s(Count uncached_tokens, Count prompt_tokens, double attention_ratio) const;
  double context_token_s(const Rank& rank) const;
  double token_s(const Rank& rank) const;
  double admission_s(const Rank& rank) const;
  double reuse_s(const Rank& rank) const;
  double decode_s(const Rank& rank) const;
  double returns_s(const Rank& rank, bool is_home) const;
  double balance_s(const Rank& rank) const;
  double settle_s(const Rank& rank, bool is_home) const;
  double lost_tokens(Count live_tokens, Count capacity_tokens) const;
  double spread_s(const Rank& rank, double own_s, double others_s) const;
  double most_credit_s() const;
  double head_s() const;
  bool wants_copies() const { return query_.has_head && query_.head.copies < costs_.max_copies; }

  const Costs& weights_;
  const Coefficients& costs_;
  const Query& query_;
  double turns_;
};

}  // namespace dovecote::pricing
