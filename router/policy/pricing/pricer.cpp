#include "pricer.hpp"

#include <algorithm>
#include <cmath>

#include "arithmetic.hpp"
#include "marks.hpp"

namespace dovecote::pricing {
namespace {

//: A larger share of what is expected is none.
constexpr double kMostCredit = 1e6;
//: Bounds and costs are sums of the same figures in different orders; this covers their last bits.
constexpr double kSlackRatio = 1e-9, kSlackS = 1e-9;
//: Terms in the order of `Term`, as their weights are called.
constexpr const char* kNames[kTerms] = {"wait",    "admission", "reuse",  "stall", "decode",
                                        "returns", "balance",   "settle", "spread"};

template <typename Number>
nb::bytes pack(const std::vector<Number>& column) {
  return nb::bytes(reinterpret_cast<const char*>(column.data()), column.size() * sizeof(Number));
}

nb::object find_target(const std::vector<Table*>& tables, const Rank* rank) {
  for (Table* table : tables) {
    const std::vector<Rank>& ranks = table->ranks();
    if (!ranks.empty() && &ranks.front() <= rank && rank <= &ranks.back())
      return table->target(static_cast<std::size_t>(rank - ranks.data()));
  }
  return nb::none();
}

Rank* find_rank(const std::vector<Table*>& tables, nb::handle target) {
  for (Table* table : tables)
    if (Rank* rank = table->find(target)) return rank;
  return nullptr;
}

// A mapping as a dict: as it is, where it is one.
nb::dict read_dict(nb::handle mapping) {
  if (PyDict_Check(mapping.ptr())) return nb::borrow<nb::dict>(mapping);
  nb::dict read;
  if (PyDict_Update(read.ptr(), mapping.ptr())) throw nb::python_error();
  return read;
}

// Tokens that a rank other than one may hold at most.
Count find_most_elsewhere(const Question& question) {
  Count tokens = 0;
  for (const nb::dict& held : {question.confirmed, question.expected})
    for (const auto [target, count] : held)
      if (!target.equal(question.asked.home)) tokens = most(tokens, read_count(count));
  return tokens;
}

// As the fields of `Seat` after the target; none of a rank that was priced in Python.
nb::object tell_seat(const Market& market, std::size_t place) {
  const Rank& rank = *market[place].rank;
  if (rank.given_s) return nb::none();
  const Seat seat = market.seat(place);
  return nb::make_tuple(rank.overlap.confirmed_tokens, rank.overlap.predicted_tokens, rank.open_requests,
                        rank.served_requests, rank.prefill_ratio, seat.wait_s, seat.reuse_s, seat.admission_s);
}

}  // namespace

Pricer::Pricer(nb::handle weights, nb::handle coefficients, const nb::tuple& window, nb::object draw)
    : costs_(read_coefficients(coefficients)),
      window_{nb::cast<double>(window[0]), nb::cast<double>(window[1])},
      draw_(std::move(draw)) {
  for (std::size_t term = 0; term < kTerms; ++term) weights_[term] = nb::cast<double>(weights.attr(kNames[term]));
}

bool Pricer::read(Question& question, const nb::list& tables, nb::handle query, double now_s) const {
  for (const nb::handle table : tables) question.tables.push_back(nb::cast<Table*>(table));
  return read_query(query, now_s, question.asked) && std::fabs(question.credit_ratio) <= kMostCredit;
}

Costs Pricer::read_costs(nb::handle row) const {
  Costs costs{};
  std::size_t at = 0;
  for (std::size_t term = 0; term < kTerms; ++term)
    if (weights_[term] > 0.0) costs[term] = nb::cast<double>(row[at++]);
  return costs;
}

nb::object Pricer::choose(const nb::list& tables, nb::handle query, nb::handle confirmed, nb::handle expected,
                          double credit_ratio, double now_s, nb::handle excluded, const nb::dict& given,
                          nb::handle seed, std::size_t few) const {
  Question question{{}, {}, read_dict(confirmed), read_dict(expected), credit_ratio};
  if (!read(question, tables, query, now_s)) return nb::none();
  const Query& asked = question.asked.query;
  Marks marks(question.tables);
  marks.hold(question.confirmed, question.expected, asked.prompt_tokens, credit_ratio);
  marks.exclude(excluded);
  for (const auto [target, costs] : given) marks.give(target, read_costs(costs));
  const Rank* home = asked.has_home ? find_rank(question.tables, question.asked.home) : nullptr;
  const Pricing pricing(weights_, costs_, asked);
  Market market(pricing);
  for (Table* table : question.tables)
    for (const Rank& rank : table->ranks()) {
      if (rank.is_excluded) continue;
      if (!rank.is_known && !rank.given_s) return nb::none();
      market.add(rank, &rank == home);
    }
  if (market.is_broken() || market.size() == 0) return nb::none();
  const std::vector<std::size_t> tied = market.find_tied(window_);
  const std::size_t chosen = break_tie(question, market, tied, seed);
  std::vector<std::size_t> shown = market.find_cheapest(few);
  shown.push_back(chosen);
  if (market.home()) shown.push_back(*market.home());
  std::sort(shown.begin(), shown.end());
  shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
  return tell(question, market, chosen, tied.size(), shown);
}

nb::object Pricer::choose_home(const nb::list& tables, nb::handle query, nb::handle confirmed, nb::handle expected,
                               double credit_ratio, double now_s, double least_prefill_ratio) const {
  Question question{{}, {}, read_dict(confirmed), read_dict(expected), credit_ratio};
  if (!read(question, tables, query, now_s)) return nb::none();
  const Query& asked = question.asked.query;
  const Rank* home = asked.has_home ? find_rank(question.tables, question.asked.home) : nullptr;
  if (!home || !home->is_known) return nb::none();
  Marks marks(question.tables);
  marks.hold(question.confirmed, question.expected, asked.prompt_tokens, credit_ratio);
  const Pricing pricing(weights_, costs_, asked);
  Market market(pricing);
  market.add(*home, true);
  const double bound_s = window_.bound_s(market[0].total_s);
  const double most_s = bound_s + std::fabs(bound_s) * kSlackRatio + kSlackS;
  const bool is_alone = pricing.least_s(find_most_elsewhere(question), least_prefill_ratio) > most_s;
  return is_alone && !market.is_broken() ? tell(question, market, 0, 1, {0}) : nb::none();
}

std::size_t Pricer::break_tie(const Question& question, const Market& market, const std::vector<std::size_t>& tied,
                              nb::handle seed) const {
  if (market.home() && std::binary_search(tied.begin(), tied.end(), *market.home())) return *market.home();
  if (tied.size() == 1) return tied.front();
  const nb::object drawn = draw_(question.asked.request_id, seed);
  const Draw draw{nb::cast<std::uint64_t>(drawn[0]), nb::cast<std::uint64_t>(drawn[1])};
  const std::vector<std::size_t> winners = market.find_winners(tied, draw);
  return *std::max_element(winners.begin(), winners.end(), [&](std::size_t one, std::size_t other) {
    return find_target(question.tables, market[one].rank) < find_target(question.tables, market[other].rank);
  });
}

nb::object Pricer::tell(const Question& question, const Market& market, std::size_t chosen, std::size_t tied,
                        const std::vector<std::size_t>& shown) const {
  nb::list targets;
  std::vector<Count> confirmed_tokens, predicted_tokens;
  std::vector<double> terms_s, totals_s;
  for (const std::size_t place : shown) {
    const Rank& rank = *market[place].rank;
    const Costs costs = market.weigh(place);
    targets.append(find_target(question.tables, &rank));
    confirmed_tokens.push_back(rank.overlap.confirmed_tokens);
    predicted_tokens.push_back(rank.overlap.predicted_tokens);
    for (std::size_t term = 0; term < kTerms; ++term)
      if (weights_[term] > 0.0) terms_s.push_back(costs[term]);
    totals_s.push_back(market[place].total_s);
  }
  return nb::make_tuple(find_target(question.tables, market[chosen].rank), tied, nb::tuple(targets),
                        pack(confirmed_tokens), pack(predicted_tokens), pack(terms_s), pack(totals_s),
                        tell_seat(market, chosen));
}

}  // namespace dovecote::pricing
