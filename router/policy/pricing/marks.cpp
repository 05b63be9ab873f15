#include "marks.hpp"

#include "arithmetic.hpp"

namespace dovecote::pricing {
namespace {

Overlap bound(Count confirmed_tokens, Count predicted_tokens, Count prompt_tokens, double credit_ratio) {
  if (confirmed_tokens <= 0 && predicted_tokens <= 0) return {};
  const Count longest = prompt_tokens > 1 ? prompt_tokens - 1 : 0;
  const Count confirmed = confirmed_tokens > longest ? longest : most<Count>(0, confirmed_tokens);
  if (predicted_tokens <= confirmed || confirmed == longest) return {confirmed, 0};
  const double more = static_cast<double>(least(predicted_tokens, longest) - confirmed);
  return {confirmed, confirmed + static_cast<Count>(more * credit_ratio)};
}

}  // namespace

Marks::~Marks() {
  for (Rank* rank : marked_) {
    rank->overlap = {};
    rank->is_excluded = false;
    rank->given_s = nullptr;
  }
}

Rank* Marks::mark(nb::handle target) {
  for (Table* table : tables_)
    if (Rank* rank = table->find(target)) {
      marked_.push_back(rank);
      return rank;
    }
  return nullptr;
}

void Marks::hold(const nb::dict& confirmed, const nb::dict& expected, Count prompt_tokens, double credit_ratio) {
  for (const auto [target, tokens] : expected)
    if (Rank* rank = mark(target))
      rank->overlap = bound(find_count(confirmed, target), read_count(tokens), prompt_tokens, credit_ratio);
  for (const auto [target, tokens] : confirmed)
    if (Rank* rank = mark(target))
      rank->overlap = bound(read_count(tokens), find_count(expected, target), prompt_tokens, credit_ratio);
}

void Marks::exclude(nb::handle targets) {
  for (const nb::handle target : targets)
    if (Rank* rank = mark(target)) rank->is_excluded = true;
}

void Marks::give(nb::handle target, const Costs& costs) {
  if (Rank* rank = mark(target)) rank->given_s = given_.emplace_back(costs).data();
}

}  // namespace dovecote::pricing
