// Every rank that may be chosen with its price, and what follows: the lowest, the tied, those worth telling of.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "terms.hpp"

namespace dovecote::pricing {

//: Costs this close to the lowest are tied, in seconds or as a share of the lowest: `router.policy.ties`.
struct TieWindow {
  double least_s, ratio;
  // The highest cost that is tied.
  double bound_s(double lowest_s) const;
};

//: A draw for one request: of tied ranks the highest `factor * hash + offset` wins, by the modulus of `ties.py`.
struct Draw {
  static constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
  std::uint64_t factor, offset;
  std::uint64_t weigh(std::uint64_t hash) const;
};

struct Offer {
  const Rank* rank;
  double total_s;
};

class Market {
 public:
  explicit Market(const Pricing& pricing) : pricing_(pricing) {}

  // A rank that may be chosen, in the order in which they are told of.
  void add(const Rank& rank, bool is_home);

  std::size_t size() const { return offers_.size(); }
  const Offer& operator[](std::size_t place) const { return offers_[place]; }
  // Some cost is no number, so that comparing means nothing.
  bool is_broken() const { return is_broken_; }
  std::optional<std::size_t> home() const { return home_; }
  // What is met on one that was added.
  Seat seat(std::size_t place) const { return pricing_.seat(*offers_[place].rank); }
  // Seconds by term of it.
  Costs weigh(std::size_t place) const;

  // Those within the window of the lowest.
  std::vector<std::size_t> find_tied(const TieWindow& window) const;
  // The cheapest, so many at most.
  std::vector<std::size_t> find_cheapest(std::size_t count) const;
  // Of some, those with the highest weight: one, unless hashes are equal.
  std::vector<std::size_t> find_winners(const std::vector<std::size_t>& tied, const Draw& draw) const;

 private:
  const Pricing& pricing_;
  std::vector<Offer> offers_;
  std::optional<std::size_t> home_;
  bool is_broken_ = false;
};

}  // namespace dovecote::pricing
