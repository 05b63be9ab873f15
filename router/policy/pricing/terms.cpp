#include "terms.hpp"

#include <cmath>

#include "arithmetic.hpp"

namespace dovecote::pricing {
namespace {

//: A copy of a hot head is not reckoned to live longer than this.
constexpr double kLongestLifeS = 60.0;

double find_turns(const Coefficients& costs, const Query& query) {
  const double turns = query.has_session ? 1.0 + costs.future_turns : 1.0;
  return query.has_home ? turns * costs.rebalance_ratio : turns;
}

}  // namespace

double Wait::own_s(double now_s) const {
  const double elapsed_s = now_s - settled_at_s;
  double own_s = most(floor_s, elapsed_s > 0.0 ? remaining_s - elapsed_s : remaining_s);
  for (const ToldWait& word : told) {
    own_s += word.waiting_s;
    own_s -= least(word.waiting_s, most(0.0, now_s - word.told_at_s));
  }
  return own_s;
}

double Wait::others_s(double now_s) const {
  if (foreign_s == 0.0) return 0.0;
  const double age_s = most(0.0, now_s - reported_at_s);
  return age_s > counts_for_s ? 0.0 : most(0.0, foreign_s - age_s);
}

Pricing::Pricing(const Costs& weights, const Coefficients& costs, const Query& query)
    : weights_(weights), costs_(costs), query_(query), turns_(find_turns(costs, query)) {}

Costs Pricing::weigh(const Rank& rank, bool is_home) const {
  const double own_s = rank.wait.own_s(query_.now_s), others_s = rank.wait.others_s(query_.now_s);
  Costs costs{};
  const auto put = [&](Term term, auto cost_s) {
    if (weights_[term] > 0.0) costs[term] = weights_[term] * cost_s();
  };
  const double reuse = weights_[kReuse] > 0.0 || weights_[kStall] > 0.0 ? reuse_s(rank) : 0.0;
  put(kWait, [&] { return own_s + others_s; });
  put(kAdmission, [&] { return query_.decode_ratio * admission_s(rank); });
  put(kReuse, [&] { return reuse; });
  put(kStall, [&] { return rank.served_requests ? static_cast<double>(rank.served_requests) * reuse : 0.0; });
  put(kDecode, [&] { return decode_s(rank); });
  put(kReturns, [&] { return returns_s(rank, is_home); });
  put(kBalance, [&] { return balance_s(rank); });
  put(kSettle, [&] { return settle_s(rank, is_home); });
  put(kSpread, [&] { return spread_s(rank, own_s, others_s); });
  return costs;
}

double Pricing::total_s(const Rank& rank, bool is_home) const {
  ExactSum sum;
  for (const double cost_s : weigh(rank, is_home)) sum.add(cost_s);
  return sum.round();
}

Seat Pricing::seat(const Rank& rank) const {
  const double wait_s = rank.wait.own_s(query_.now_s) + rank.wait.others_s(query_.now_s);
  return {wait_s, reuse_s(rank), query_.decode_ratio * admission_s(rank)};
}

double Pricing::least_s(Count held_tokens, double prefill_ratio) const {
  const Count held = least(held_tokens, most<Count>(0, query_.prompt_tokens - 1));
  const double ratio = query_.prefill_ratio * prefill_ratio;
  const double reuse = ratio * prefill_s(query_.prompt_tokens - held, query_.prompt_tokens, query_.attention_ratio);
  return weights_[kReuse] * reuse - weights_[kSpread] * most_credit_s();
}

// Seconds to compute the last tokens of a prompt: `router.policy.prefill`.
double Pricing::prefill_s(Count uncached_tokens, Count prompt_tokens, double attention_ratio) const {
  const double uncached = static_cast<double>(uncached_tokens);
  const double attended = most(0.0, static_cast<double>(prompt_tokens) - uncached / 2.0);
  const double pair_s = costs_.attention_s_per_token_pair * attention_ratio;
  return uncached * (costs_.prefill_s_per_token + pair_s * attended);
}

// Seconds that one token attended to adds to a step: `router.policy.steps`.
double Pricing::context_token_s(const Rank& rank) const {
  if (rank.capacity_tokens && costs_.decode_s_per_full_cache > 0.0)
    return rank.context_ratio * costs_.decode_s_per_full_cache / static_cast<double>(rank.capacity_tokens);
  return rank.context_ratio * costs_.decode_s_per_context_token;
}

// Seconds of prefill for one token in the middle of the prompt: `router.policy.balance`.
double Pricing::token_s(const Rank& rank) const {
  const double pair_s = costs_.attention_s_per_token_pair * query_.attention_ratio;
  const double attended_s = pair_s * static_cast<double>(query_.prompt_tokens) / 2.0;
  return query_.prefill_ratio * rank.prefill_ratio * (costs_.prefill_s_per_token + attended_s);
}

double Pricing::admission_s(const Rank& rank) const {
  if (!rank.capacity_tokens || rank.open_tokens <= 0 || !rank.open_requests) return 0.0;
  const Count output = query_.expected_output_tokens;
  const Count missing = rank.open_tokens + query_.prompt_tokens + output - rank.capacity_tokens;
  if (missing <= 0) return 0.0;
  const Count waiting = most<Count>(0, rank.open_requests - rank.decoding_requests);
  const double left = static_cast<double>(rank.remaining_output_tokens + waiting * output) /
                      static_cast<double>(rank.open_requests);
  const double attended = static_cast<double>(least(rank.context_tokens, rank.capacity_tokens));
  const double added_s = costs_.decode_s_per_request * static_cast<double>(rank.decoding_requests) +
                         attended * context_token_s(rank);
  const double step_s = costs_.decode_step_s + added_s;
  return rank.decode_ratio * left * step_s * static_cast<double>(missing) / static_cast<double>(rank.open_tokens);
}

double Pricing::reuse_s(const Rank& rank) const {
  const double ratio = query_.prefill_ratio * rank.prefill_ratio;
  const Count uncached = query_.prompt_tokens - rank.overlap.usable_tokens();
  return ratio * prefill_s(uncached, query_.prompt_tokens, query_.attention_ratio);
}

double Pricing::decode_s(const Rank& rank) const {
  if (!rank.joint_output_tokens) return 0.0;
  const Count attended = rank.joint_context_tokens + query_.prompt_tokens * rank.joint_output_tokens;
  const double request_s = 2.0 * costs_.decode_s_per_request * static_cast<double>(rank.joint_output_tokens);
  const double attended_s = static_cast<double>(attended) * context_token_s(rank);
  return query_.decode_ratio * query_.joint_ratio * (rank.decode_ratio * (request_s + attended_s));
}

double Pricing::returns_s(const Rank& rank, bool is_home) const {
  Count sessions = rank.paused_sessions, tokens = rank.paused_tokens;
  if (query_.pauses_at_home && is_home) {
    sessions = most<Count>(0, sessions - 1);
    tokens = most<Count>(0, tokens - query_.home_tokens);
  }
  if (!sessions) return 0.0;
  const double pace = query_.decode_ratio * rank.decode_ratio;
  const double generating_s = static_cast<double>(query_.expected_output_tokens) * pace * costs_.decode_step_s;
  const double met_ratio = (1.0 - std::exp(-query_.return_rate_per_s * generating_s)) / 2.0;
  const double attended_s = static_cast<double>(tokens + sessions * query_.prompt_tokens) * context_token_s(rank);
  const double request_s = 2.0 * costs_.decode_s_per_request * static_cast<double>(sessions);
  return pace * met_ratio * static_cast<double>(query_.joint_output_tokens) * (request_s + attended_s);
}

double Pricing::balance_s(const Rank& rank) const {
  if (!rank.has_capacity || rank.eviction_reuse_ratio <= 0.0) return 0.0;
  const Count added = query_.prompt_tokens - rank.overlap.usable_tokens() + query_.expected_output_tokens;
  const Count free = most<Count>(0, rank.capacity_tokens - rank.resident_tokens);
  const Count evicted = least(most<Count>(0, added - free), rank.capacity_tokens);
  return static_cast<double>(evicted) * rank.eviction_reuse_ratio * token_s(rank);
}

double Pricing::settle_s(const Rank& rank, bool is_home) const {
  if (turns_ <= 0.0) return 0.0;
  Count live = rank.live_tokens;
  if (is_home) live = most<Count>(0, live - query_.home_tokens);
  double lost = 0.0;
  if (rank.capacity_tokens && query_.has_session) {
    const double after = lost_tokens(live + query_.prompt_tokens + query_.expected_output_tokens, rank.capacity_tokens);
    lost = most(0.0, after - lost_tokens(live, rank.capacity_tokens));
  }
  double excess_ratio = 0.0;
  if (query_.mean_live_sessions > 0.0) {
    const Count sessions = rank.live_sessions - (query_.home_tokens > 0 && is_home);
    excess_ratio = least(most(static_cast<double>(sessions) / query_.mean_live_sessions - 1.0, 0.0), 1.0);
  }
  const double waiting_ratio = rank.busy_ratio / 2.0 + costs_.crowding_ratio * excess_ratio;
  const double lost_s = lost != 0.0 ? lost * token_s(rank) : 0.0;
  return turns_ * (lost_s + waiting_ratio * query_.request_work_s);
}

double Pricing::lost_tokens(Count live_tokens, Count capacity_tokens) const {
  if (live_tokens <= 0) return 0.0;
  const double live = static_cast<double>(live_tokens);
  return live * std::exp(-costs_.working_set_factor * static_cast<double>(capacity_tokens) / live);
}

double Pricing::spread_s(const Rank& rank, double own_s, double others_s) const {
  if (!wants_copies() || rank.overlap.usable_tokens() >= query_.head.tokens) return 0.0;
  const double spared_s = most(0.0, query_.head.least_wait_s - own_s - others_s);
  const double life_s = std::isnan(rank.cache_age_s) ? kLongestLifeS : least(rank.cache_age_s, kLongestLifeS);
  const double served = query_.head.requests_per_s * life_s / static_cast<double>(query_.head.copies + 1);
  return -least(served * spared_s, head_s());
}

double Pricing::most_credit_s() const {
  if (!wants_copies()) return 0.0;
  const double served = query_.head.requests_per_s * kLongestLifeS / static_cast<double>(query_.head.copies + 1);
  return least(served * most(0.0, query_.head.least_wait_s), head_s());
}

double Pricing::head_s() const {
  return query_.prefill_ratio * prefill_s(query_.head.tokens, query_.head.tokens, 1.0);
}

}  // namespace dovecote::pricing
