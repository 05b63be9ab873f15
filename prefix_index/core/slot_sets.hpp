// Interned sets of slots: equal sets have one number, and adding or taking a slot is mostly one look-up.
//
// A set is a sorted list of (word number, 64 bits), so it is small for one holder and for 8,000. Sets
// are counted by those who refer to them; what nobody refers to is swept in one go now and then.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "types.hpp"

namespace dovecote {

class SlotSets {
 public:
  struct Word {
    std::uint32_t index;
    std::uint64_t bits;
  };
  static constexpr SetId kMaxSets = (1u << 24) - 1;

  SlotSets();

  bool contains(SetId set, Slot slot) const {
    const Set& one = sets_[set];
    const std::uint32_t index = slot / 64;
    for (std::uint32_t at = one.size > 8 ? lower_word(one, index) : 0; at < one.size; ++at) {
      if (one.words[at].index >= index)
        return one.words[at].index == index && (one.words[at].bits >> (slot % 64) & 1) != 0;
    }
    return false;
  }

  // The set with a slot added (that is not in it) or taken (that is).
  SetId with(SetId set, Slot slot) { return step(set, slot, true); }
  SetId without(SetId set, Slot slot) { return step(set, slot, false); }

  // One reference more to `to`, one less to `from`.
  void move_reference(SetId from, SetId to) {
    if (sets_[to].references++ == 0) --unused_;
    if (--sets_[from].references == 0) ++unused_;
  }

  // Forget unused sets when they are many; numbers that no counted reference keeps are void after it.
  void tidy() {
    if (unused_ > 1024 && unused_ > sets_.size() / 2) sweep();
  }

  // Visit the slots of `left` that are not in `right`.
  template <typename Visit>
  void visit_difference(SetId left, SetId right, Visit visit) const {
    const Set &one = sets_[left], &other = sets_[right];
    std::uint32_t beside = 0;
    for (std::uint32_t at = 0; at < one.size; ++at) {
      const Word& word = one.words[at];
      while (beside < other.size && other.words[beside].index < word.index) ++beside;
      const bool meets = beside < other.size && other.words[beside].index == word.index;
      for (std::uint64_t bits = word.bits & ~(meets ? other.words[beside].bits : 0); bits != 0; bits &= bits - 1)
        visit(word.index * 64 + static_cast<Slot>(std::countr_zero(bits)));
    }
  }

  bool is_full() const { return sets_.size() > kMaxSets - (1u << 18) && free_.size() < (1u << 18); }
  std::size_t count() const { return sets_.size() - free_.size(); }
  std::size_t bytes() const { return bytes_ + sets_.capacity() * sizeof(Set) + table_.capacity() * 4 + sizeof recent_; }

 private:
  struct Set {
    std::unique_ptr<Word[]> words;
    std::uint64_t hash = 0;
    std::uint32_t size = 0;
    std::uint32_t references = 0;
  };
  struct Recent {
    std::uint64_t key = ~std::uint64_t{0};
    SetId result = 0;
  };

  static std::uint32_t lower_word(const Set& set, std::uint32_t index);
  static std::uint64_t mix(Slot slot);

  SetId step(SetId set, Slot slot, bool adds) {
    const std::uint64_t key = static_cast<std::uint64_t>(set) << 33 | static_cast<std::uint64_t>(slot) << 1 | adds;
    Recent& recent = recent_[(key * 0x9E3779B97F4A7C15ull) >> 52];
    if (recent.key != key) recent = {key, make(set, slot, adds)};
    return recent.result;
  }
  SetId make(SetId set, Slot slot, bool adds);
  void build(const Set& from, Slot slot, bool adds);
  SetId intern(std::uint64_t hash);
  void list(SetId set);
  void sweep();
  void rebuild(std::size_t capacity);

  std::vector<Set> sets_;
  std::vector<SetId> free_;
  //: Open addressing by hash: set numbers, 0 where empty.
  std::vector<SetId> table_;
  std::size_t listed_ = 0, unused_ = 0, bytes_ = 0;
  std::vector<Word> scratch_;
  std::array<Recent, 4096> recent_;
};

}  // namespace dovecote
