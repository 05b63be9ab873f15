// Interned sets of slots: making, finding and forgetting them.

#include "slot_sets.hpp"

#include <algorithm>

namespace dovecote {

// The empty set is never unused: its count starts above all fields that may leave it.
SlotSets::SlotSets() : sets_(1), table_(1024, 0) { sets_[0].references = 1u << 31; }

std::uint32_t SlotSets::lower_word(const Set& set, std::uint32_t index) {
  const Word* first = set.words.get();
  return static_cast<std::uint32_t>(
      std::lower_bound(first, first + set.size, index,
                       [](const Word& word, std::uint32_t wanted) { return word.index < wanted; }) -
      first);
}

std::uint64_t SlotSets::mix(Slot slot) {
  std::uint64_t hash = (slot + 1) * 0x9E3779B97F4A7C15ull;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBull;
  return hash ^ (hash >> 31);
}

SetId SlotSets::make(SetId set, Slot slot, bool adds) {
  build(sets_[set], slot, adds);
  return scratch_.empty() ? 0 : intern(sets_[set].hash ^ mix(slot));
}

// The changed set's words into scratch_.
void SlotSets::build(const Set& from, Slot slot, bool adds) {
  const std::uint32_t index = slot / 64;
  const std::uint64_t bit = std::uint64_t{1} << (slot % 64);
  const std::uint32_t at = lower_word(from, index);
  scratch_.assign(from.words.get(), from.words.get() + from.size);
  const bool meets = at < from.size && from.words[at].index == index;
  if (!meets) {
    if (adds) scratch_.insert(scratch_.begin() + at, Word{index, bit});
    return;
  }
  if (adds)
    scratch_[at].bits |= bit;
  else
    scratch_[at].bits &= ~bit;
  if (scratch_[at].bits == 0) scratch_.erase(scratch_.begin() + at);
}

SetId SlotSets::intern(std::uint64_t hash) {
  const auto equals = [&](const Set& set) {
    return set.hash == hash && set.size == scratch_.size() &&
           std::equal(scratch_.begin(), scratch_.end(), set.words.get(), [](const Word& one, const Word& other) {
             return one.index == other.index && one.bits == other.bits;
           });
  };
  const std::size_t mask = table_.size() - 1;
  for (std::size_t at = hash & mask; table_[at] != 0; at = (at + 1) & mask)
    if (equals(sets_[table_[at]])) return table_[at];
  SetId id;
  if (free_.empty()) {
    id = static_cast<SetId>(sets_.size());
    sets_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Set& made = sets_[id];
  made.words = std::make_unique_for_overwrite<Word[]>(scratch_.size());
  std::copy(scratch_.begin(), scratch_.end(), made.words.get());
  made.hash = hash;
  made.size = static_cast<std::uint32_t>(scratch_.size());
  made.references = 0;
  ++unused_;
  bytes_ += scratch_.size() * sizeof(Word) + 16;
  if ((listed_ + 1) * 2 > table_.size()) rebuild(table_.size() * 2);
  list(id);
  return id;
}

void SlotSets::list(SetId set) {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = sets_[set].hash & mask;
  while (table_[at] != 0) at = (at + 1) & mask;
  table_[at] = set;
  ++listed_;
}

void SlotSets::rebuild(std::size_t capacity) {
  std::vector<SetId> old(capacity, 0);
  old.swap(table_);
  listed_ = 0;
  for (const SetId set : old)
    if (set != 0 && sets_[set].size != 0) list(set);
}

void SlotSets::sweep() {
  for (SetId set = 1; set < sets_.size(); ++set) {
    Set& one = sets_[set];
    if (one.references != 0 || one.size == 0) continue;
    bytes_ -= one.size * sizeof(Word) + 16;
    one.words.reset();
    one.size = 0;
    free_.push_back(set);
  }
  unused_ = 0;
  recent_.fill(Recent{});
  std::size_t capacity = 1024;
  while (capacity < count() * 4) capacity *= 2;
  rebuild(capacity);
}

}  // namespace dovecote
