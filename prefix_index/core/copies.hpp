// Copies of one block, by the shelf that has them; and the codes by which entries of a name map say them.
#pragma once

#include <algorithm>
#include <vector>

#include "types.hpp"

namespace dovecote {

//: Number of one cache group in one tier of a holder.
using ShelfId = std::uint16_t;

//: What one shelf has of a block: copies, or those that were there when events were lost.
struct Copy {
  ShelfId shelf;
  bool is_doubted;
  //: 0 where they are doubted.
  std::uint32_t count;
  bool operator==(const Copy&) const = default;
};

//: In order of their shelves; one entry each.
class Copies {
 public:
  std::vector<Copy> list;

  bool is_gone() const { return list.empty(); }
  std::uint32_t count(ShelfId shelf) const {
    const Copy* found = find(shelf);
    return found == nullptr ? 0 : found->count;
  }
  bool is_doubted(ShelfId shelf) const {
    const Copy* found = find(shelf);
    return found != nullptr && found->is_doubted;
  }
  bool has_doubt() const {
    return std::any_of(list.begin(), list.end(), [](const Copy& copy) { return copy.is_doubted; });
  }
  // So many copies, counted; none forgets the shelf, doubt included.
  void set(ShelfId shelf, std::uint32_t count) {
    std::erase_if(list, [&](const Copy& copy) { return copy.shelf == shelf; });
    if (count > 0) add({shelf, false, count});
  }
  // What a shelf has that had nothing.
  void add(const Copy& copy) {
    const auto is_before = [](const Copy& one, ShelfId wanted) { return one.shelf < wanted; };
    list.insert(std::lower_bound(list.begin(), list.end(), copy.shelf, is_before), copy);
  }
  void doubt_all() {
    for (Copy& copy : list) copy = {copy.shelf, true, 0};
  }
  bool operator==(const Copies&) const = default;

 private:
  const Copy* find(ShelfId shelf) const {
    for (const Copy& copy : list)
      if (copy.shelf == shelf) return &copy;
    return nullptr;
  }
};

//: What 5 bits of an entry mean: the copies that a holder's blocks mostly have, one number each.
class CopyCodes {
 public:
  //: The exact copies stand beside the map.
  static constexpr std::uint32_t kMany = 31;

  // The code of some copies (of at least one), kMany where there are too many different ones.
  std::uint32_t find(const Copies& copies) {
    const auto found = std::find(known_.begin(), known_.end(), copies);
    if (found != known_.end()) return static_cast<std::uint32_t>(found - known_.begin()) + 1;
    if (known_.size() + 1 >= kMany) return kMany;
    known_.push_back(copies);
    return static_cast<std::uint32_t>(known_.size());
  }
  const Copies& at(std::uint32_t code) const { return known_[code - 1]; }

 private:
  std::vector<Copies> known_;
};

}  // namespace dovecote
