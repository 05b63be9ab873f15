#include "read.hpp"

#include <limits>

namespace dovecote::pricing {
namespace {

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
    const Count count = to.*field.to = field.name.count(from);
    fits = fits && -field.bound <= count && count <= field.bound;
  }
  return fits;
}

template <typename Struct, std::size_t kCount>
void read_fields(nb::handle from, const RealField<Struct> (&fields)[kCount], Struct& to) {
  for (const auto& field : fields) to.*field.to = field.name.real(from);
}

}  // namespace

nb::object Name::of(nb::handle object) const {
  PyObject* found = PyObject_GetAttr(object.ptr(), word_);
  if (!found) throw nb::python_error();
  return nb::steal(found);
}

double read_real(nb::handle number) {
  const double real = PyFloat_AsDouble(number.ptr());
  if (real == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return real;
}

Count read_count(nb::handle count) {
  int overflow = 0;
  const long long read = PyLong_AsLongLongAndOverflow(count.ptr(), &overflow);
  if (overflow) return overflow > 0 ? std::numeric_limits<Count>::max() : std::numeric_limits<Count>::min();
  if (read == -1 && PyErr_Occurred()) throw nb::python_error();
  return read;
}

nb::handle find(const nb::dict& from, nb::handle key) {
  PyObject* found = PyDict_GetItemWithError(from.ptr(), key.ptr());
  if (!found && PyErr_Occurred()) throw nb::python_error();
  return found;
}

Count find_count(const nb::dict& counts, nb::handle key) {
  const nb::handle count = find(counts, key);
  return count ? read_count(count) : 0;
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
