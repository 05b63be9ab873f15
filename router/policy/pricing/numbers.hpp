// A rank and a query in numbers: what `router.policy.base` says of them, where it also says what each means.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace dovecote::pricing {

using Count = std::int64_t;

//: Counts up to these are reckoned with exactly, in whole numbers and as what they are divided by. What is beyond is
//: priced in Python.
inline constexpr Count kMostRequests = Count{1} << 24, kMostTokens = Count{1} << 50;
inline constexpr Count kMostJointTokens = Count{1} << 33, kMostPairs = Count{1} << 60;
inline constexpr Count kMostPromptTokens = Count{1} << 27;

//: What another router told of its work on a rank.
struct ToldWait {
  double waiting_s, told_at_s;
};

//: Seconds of work ahead as they shrink with the clock: `Ledger.waiting_s` and `find_foreign_load`.
struct Wait {
  double settled_at_s = -std::numeric_limits<double>::infinity(), remaining_s = 0.0, floor_s = 0.0;
  std::vector<ToldWait> told;
  //: Work of others, as of a report that counts for a while.
  double foreign_s = 0.0, reported_at_s = 0.0, counts_for_s = 0.0;

  double own_s(double now_s) const;
  double others_s(double now_s) const;
};

//: Tokens of a prompt on a rank: confirmed, and with those expected of requests being prefilled there, discounted.
struct Overlap {
  Count confirmed_tokens = 0, predicted_tokens = 0;
  Count usable_tokens() const { return confirmed_tokens >= predicted_tokens ? confirmed_tokens : predicted_tokens; }
};

struct Rank {
  Count open_requests, served_requests, decoding_requests, remaining_output_tokens, context_tokens;
  Count joint_output_tokens, joint_context_tokens, resident_tokens, open_tokens;
  Count live_tokens, live_sessions, paused_sessions, paused_tokens;
  //: 0 where unknown; `has_capacity` tells that from a cache of no tokens.
  Count capacity_tokens;
  bool has_capacity;
  //: Not a number where nothing is pushed out.
  double cache_age_s;
  double eviction_reuse_ratio, busy_ratio, prefill_ratio, decode_ratio, context_ratio;
  Wait wait;
  //: Stands for it in a tie.
  std::uint64_t hash;
  //: It was written, and its numbers are within the bounds.
  bool is_known = false;

  // Of one question: what lies there, whether it may be chosen, and its costs by term where others reckoned them.
  Overlap overlap;
  bool is_excluded = false;
  const double* given_s = nullptr;
};

struct HotHead {
  Count tokens, copies;
  double requests_per_s, least_wait_s;
};

struct Query {
  Count prompt_tokens, expected_output_tokens, joint_output_tokens, home_tokens;
  double joint_ratio, return_rate_per_s, mean_live_sessions, request_work_s;
  double prefill_ratio, attention_ratio, decode_ratio;
  bool has_session, has_home, pauses_at_home, has_head;
  HotHead head;
  double now_s;
};

}  // namespace dovecote::pricing
