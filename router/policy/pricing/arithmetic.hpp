// Python's arithmetic where it differs from what C++ does by itself, to the last bit.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>

namespace dovecote::pricing {

// Python's `max` and `min`: the first stays unless the second is more, which tells where one is no number.
template <typename Number>
constexpr Number most(Number first, Number second) {
  return second > first ? second : first;
}

template <typename Number>
constexpr Number least(Number first, Number second) {
  return second < first ? second : first;
}

// Python's `math.fsum` of few numbers: their exact sum, rounded once (Shewchuk's partial sums, as CPython adds them).
class ExactSum {
 public:
  static constexpr std::size_t kMostNumbers = 16;

  void add(double number) {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < count_; ++at) {
      double partial = partials_[at];
      if (std::fabs(number) < std::fabs(partial)) std::swap(number, partial);
      const double high = number + partial;
      const double low = partial - (high - number);
      if (low != 0.0) partials_[kept++] = low;
      number = high;
    }
    if (number != 0.0) partials_[kept++] = number;
    count_ = kept;
  }

  double round() const {
    std::size_t left = count_;
    if (left == 0) return 0.0;
    double high = partials_[--left], low = 0.0;
    while (left > 0 && low == 0.0) {
      const double sum = high, partial = partials_[--left];
      high = sum + partial;
      low = partial - (high - sum);
    }
    // Half-way between two numbers, what was not added decides.
    if (left > 0 && ((low < 0.0 && partials_[left - 1] < 0.0) || (low > 0.0 && partials_[left - 1] > 0.0))) {
      const double twice = low * 2.0, away = high + twice;
      if (twice == away - high) high = away;
    }
    return high;
  }

 private:
  double partials_[kMostNumbers + 1];
  std::size_t count_ = 0;
};

}  // namespace dovecote::pricing
