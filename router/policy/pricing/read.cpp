#include "read.hpp"

#include <cmath>
#include <limits>

namespace dovecote::pricing {
namespace {

//: A field's name, made once.
class Name {
 public:
  explicit Name(const char* word) : word_(PyUnicode_InternFromString(word)) {}
  nb::object of(nb::handle object) const {
    PyObject* found = PyObject_GetAttr(object.ptr(), word_);
    if (!found) throw nb::python_error();
    return nb::steal(found);
  }

 private:
  PyObject* word_;
};

double to_real(nb::handle number) {
  const double real = PyFloat_AsDouble(number.ptr());
  if (real == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return real;
}

template <typename Struct>
struct WholeField {
  Name name;
  Count Struct::*to;
  //: Largest that is reckoned with; as small below 0.
  Count bound;
};

template <typename Struct>
struct RealField {
  Name name;
  double Struct::*to;
};

template <typename Struct, std::size_t kCount>
bool read_fields(nb::handle from, const WholeField<Struct> (&fields)[kCount], Struct& to) {
  bool fits = true;
  for (const auto& field : fields) {
    const Count count = to.*field.to = read_count(field.name.of(from));
    fits = fits && -field.bound <= count && count <= field.bound;
  }
  return fits;
}

template <typename Struct, std::size_t kCount>
void read_fields(nb::handle from, const RealField<Struct> (&fields)[kCount], Struct& to) {
  for (const auto& field : fields) to.*field.to = to_real(field.name.of(from));
}

}  // namespace

Count read_count(nb::handle count) {
  int overflow = 0;
  const long long read = PyLong_AsLongLongAndOverflow(count.ptr(), &overflow);
  if (overflow) return overflow > 0 ? std::numeric_limits<Count>::max() : std::numeric_limits<Count>::min();
  if (read == -1 && PyErr_Occurred()) throw nb::python_error();
  return read;
}

Count find_count(const nb::dict& counts, nb::handle key) {
  PyObject* count = PyDict_GetItemWithError(counts.ptr(), key.ptr());
  if (!count && PyErr_Occurred()) throw nb::python_error();
  return count ? read_count(count) : 0;
}

bool read_view(nb::handle view, Rank& rank) {
  static const WholeField<Rank> wholes[] = {
      {Name("open_requests"), &Rank::open_requests, kMostRequests},
      {Name("served_requests"), &Rank::served_requests, kMostRequests},
      {Name("decoding_requests"), &Rank::decoding_requests, kMostRequests},
      {Name("remaining_output_tokens"), &Rank::remaining_output_tokens, kMostTokens},
      {Name("context_tokens"), &Rank::context_tokens, kMostTokens},
      {Name("joint_output_tokens"), &Rank::joint_output_tokens, kMostJointTokens},
      {Name("joint_context_tokens"), &Rank::joint_context_tokens, kMostPairs},
      {Name("resident_tokens"), &Rank::resident_tokens, kMostTokens},
      {Name("open_tokens"), &Rank::open_tokens, kMostTokens},
      {Name("live_tokens"), &Rank::live_tokens, kMostTokens},
      {Name("live_sessions"), &Rank::live_sessions, kMostRequests},
      {Name("paused_sessions"), &Rank::paused_sessions, kMostRequests},
      {Name("paused_tokens"), &Rank::paused_tokens, kMostTokens},
  };
  static const RealField<Rank> reals[] = {
      {Name("eviction_reuse_ratio"), &Rank::eviction_reuse_ratio}, {Name("busy_ratio"), &Rank::busy_ratio},
      {Name("prefill_ratio"), &Rank::prefill_ratio},               {Name("decode_ratio"), &Rank::decode_ratio},
      {Name("context_ratio"), &Rank::context_ratio},
  };
  static const Name capacity_tokens("capacity_tokens"), cache_age_s("cache_age_s");
  read_fields(view, reals, rank);
  const nb::object capacity = capacity_tokens.of(view), age = cache_age_s.of(view);
  rank.has_capacity = !capacity.is_none();
  rank.capacity_tokens = rank.has_capacity ? read_count(capacity) : 0;
  rank.cache_age_s = age.is_none() ? std::nan("") : to_real(age);
  const bool fits = -kMostTokens <= rank.capacity_tokens && rank.capacity_tokens <= kMostTokens;
  return read_fields(view, wholes, rank) && fits;
}

Wait read_wait(const nb::tuple& own, const nb::tuple& told, const nb::tuple& foreign) {
  Wait wait;
  if (own.size()) {
    wait.settled_at_s = to_real(own[0]);
    wait.remaining_s = to_real(own[1]);
    wait.floor_s = to_real(own[2]);
  }
  for (const nb::handle word : told) wait.told.push_back({to_real(word[0]), to_real(word[1])});
  if (foreign.size()) {
    wait.foreign_s = to_real(foreign[0]);
    wait.reported_at_s = to_real(foreign[1]);
    wait.counts_for_s = to_real(foreign[2]);
  }
  return wait;
}

bool read_query(nb::handle from, double now_s, Asked& asked) {
  static const WholeField<Query> wholes[] = {
      {Name("prompt_tokens"), &Query::prompt_tokens, kMostPromptTokens},
      {Name("expected_output_tokens"), &Query::expected_output_tokens, kMostPromptTokens},
      {Name("joint_output_tokens"), &Query::joint_output_tokens, kMostTokens},
      {Name("home_tokens"), &Query::home_tokens, kMostTokens},
  };
  static const RealField<Query> reals[] = {
      {Name("joint_ratio"), &Query::joint_ratio},
      {Name("return_rate_per_s"), &Query::return_rate_per_s},
      {Name("mean_live_sessions"), &Query::mean_live_sessions},
      {Name("request_work_s"), &Query::request_work_s},
      {Name("prefill_ratio"), &Query::prefill_ratio},
      {Name("attention_ratio"), &Query::attention_ratio},
      {Name("decode_ratio"), &Query::decode_ratio},
  };
  static const WholeField<HotHead> head_wholes[] = {
      {Name("tokens"), &HotHead::tokens, kMostTokens},
      {Name("copies"), &HotHead::copies, kMostTokens},
  };
  static const RealField<HotHead> head_reals[] = {
      {Name("requests_per_s"), &HotHead::requests_per_s},
      {Name("least_wait_s"), &HotHead::least_wait_s},
  };
  static const Name session("session"), home("home"), pauses("pauses_at_home"), hot("head"), name("request_id");
  Query& query = asked.query;
  query.now_s = now_s;
  query.has_session = !session.of(from).is_none();
  query.pauses_at_home = nb::cast<bool>(pauses.of(from));
  asked.home = home.of(from);
  asked.request_id = name.of(from);
  query.has_home = !asked.home.is_none();
  read_fields(from, reals, query);
  bool fits = read_fields(from, wholes, query);
  const nb::object head = hot.of(from);
  query.has_head = !head.is_none();
  if (query.has_head) {
    read_fields(head, head_reals, query.head);
    fits = read_fields(head, head_wholes, query.head) && fits;
  }
  return fits;
}

Coefficients read_coefficients(nb::handle from) {
  static const RealField<Coefficients> reals[] = {
      {Name("prefill_s_per_token"), &Coefficients::prefill_s_per_token},
      {Name("attention_s_per_token_pair"), &Coefficients::attention_s_per_token_pair},
      {Name("decode_step_s"), &Coefficients::decode_step_s},
      {Name("decode_s_per_request"), &Coefficients::decode_s_per_request},
      {Name("decode_s_per_full_cache"), &Coefficients::decode_s_per_full_cache},
      {Name("decode_s_per_context_token"), &Coefficients::decode_s_per_context_token},
      {Name("future_turns"), &Coefficients::future_turns},
      {Name("rebalance_ratio"), &Coefficients::rebalance_ratio},
      {Name("crowding_ratio"), &Coefficients::crowding_ratio},
      {Name("working_set_factor"), &Coefficients::working_set_factor},
  };
  static const Name max_copies("max_copies");
  Coefficients costs;
  read_fields(from, reals, costs);
  costs.max_copies = read_count(max_copies.of(from));
  return costs;
}

}  // namespace dovecote::pricing
