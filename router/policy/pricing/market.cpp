#include "market.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arithmetic.hpp"

namespace dovecote::pricing {

double TieWindow::bound_s(double lowest_s) const { return lowest_s + most(least_s, ratio * std::fabs(lowest_s)); }

std::uint64_t Draw::weigh(std::uint64_t hash) const {
  using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{factor} * hash + offset) % kPrime);
}

void Market::add(const Rank& rank, bool is_home) {
  double total_s;
  if (rank.given_s) {
    ExactSum sum;
    for (std::size_t term = 0; term < kTerms; ++term) sum.add(rank.given_s[term]);
    total_s = sum.round();
  } else {
    total_s = pricing_.total_s(rank, is_home);
  }
  is_broken_ = is_broken_ || !std::isfinite(total_s);
  if (is_home) home_ = offers_.size();
  offers_.push_back({&rank, total_s});
}

Costs Market::weigh(std::size_t place) const {
  const Rank& rank = *offers_[place].rank;
  if (!rank.given_s) return pricing_.weigh(rank, place == home_);
  Costs costs;
  std::copy_n(rank.given_s, kTerms, costs.begin());
  return costs;
}

std::vector<std::size_t> Market::find_tied(const TieWindow& window) const {
  double lowest_s = offers_.front().total_s;
  for (const Offer& offer : offers_) lowest_s = least(lowest_s, offer.total_s);
  const double bound_s = window.bound_s(lowest_s);
  std::vector<std::size_t> tied;
  for (std::size_t place = 0; place < offers_.size(); ++place)
    if (offers_[place].total_s <= bound_s) tied.push_back(place);
  return tied;
}

std::vector<std::size_t> Market::find_cheapest(std::size_t count) const {
  std::vector<std::size_t> places(offers_.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const auto end = places.begin() + static_cast<std::ptrdiff_t>(std::min(count, places.size()));
  std::partial_sort(places.begin(), end, places.end(), [&](std::size_t one, std::size_t other) {
    return std::pair(offers_[one].total_s, one) < std::pair(offers_[other].total_s, other);
  });
  places.erase(end, places.end());
  return places;
}

std::vector<std::size_t> Market::find_winners(const std::vector<std::size_t>& tied, const Draw& draw) const {
  std::vector<std::size_t> winners;
  std::uint64_t highest = 0;
  for (const std::size_t place : tied) {
    const std::uint64_t weight = draw.weigh(offers_[place].rank->hash);
    if (weight > highest || winners.empty()) {
      winners.clear();
      highest = weight;
    }
    if (weight == highest) winners.push_back(place);
  }
  return winners;
}

}  // namespace dovecote::pricing
