// The index: attaching, applying, making room.

#include "index.hpp"

#include <algorithm>

namespace dovecote {

std::uint32_t Index::attach(HolderSettings settings) {
  std::uint32_t number;
  if (free_holders_.empty()) {
    number = static_cast<std::uint32_t>(holders_.size());
    holders_.emplace_back();
  } else {
    number = free_holders_.back();
    free_holders_.pop_back();
  }
  holders_[number] = std::make_unique<Holder>(tree_, number, std::move(settings));
  return number;
}

void Index::detach(std::uint32_t holder) {
  clear(holder);
  holders_[holder].reset();
  free_holders_.push_back(holder);
}

void Index::apply(std::uint32_t holder, const Batch& batch, const Event& event, Delta& delta) {
  tree_.tidy();
  Holder& target = *holders_[holder];
  if (event.kind == EventKind::kCleared) {
    clear(holder);
  } else {
    const std::size_t before = target.entry_count();
    if (event.kind == EventKind::kStored)
      target.store(batch, event, delta);
    else
      target.remove(batch, event, delta);
    make_room(holder, before);
  }
  if (!tree_.is_settled()) tree_.settle(kSettleFloor + 16 * std::size_t{event.name_count});
}

void Index::store_places(std::uint32_t holder, const Batch& batch, const Event& event, Delta& delta) {
  tree_.tidy();
  const std::size_t before = holders_[holder]->entry_count();
  holders_[holder]->store_places(batch, event, delta);
  make_room(holder, before);
  if (!tree_.is_settled()) tree_.settle(kSettleFloor + 16 * std::size_t{event.name_count});
}

std::size_t Index::clear(std::uint32_t holder) {
  entries_ -= holders_[holder]->entry_count();
  return holders_[holder]->clear();
}

std::size_t Index::doubt(std::uint32_t holder) {
  const std::size_t before = holders_[holder]->entry_count();
  const std::size_t counted = holders_[holder]->doubt();
  entries_ += holders_[holder]->entry_count() - before;
  return counted;
}

bool Index::apply_payload(std::uint32_t holder, std::string_view payload, Outcome& outcome) {
  if (!decode_batch(payload, batch_)) return false;
  ++outcome.batches;
  for (const Event& event : batch_.events) {
    ++outcome.kinds[static_cast<std::size_t>(event.kind)];
    apply(holder, batch_, event, outcome.delta);
  }
  return true;
}

// Count what came in; above the bound, look over a few entries for each new one and forget the old ones. The
// nearer the hard bound, the younger may be what goes, so that the bound always holds within some entries.
void Index::make_room(std::uint32_t storing, std::size_t before) {
  const std::size_t now = holders_[storing]->entry_count();
  entries_ += now - before;
  if (now <= before) return;
  const std::size_t came = now - before;
  stored_in_tick_ += came;
  if (stored_in_tick_ * kTicks > max_entries_) {
    stored_in_tick_ = 0;
    tree_.advance_tick();
  }
  const std::size_t margin = max_entries_ / 16, soft = max_entries_ - margin;
  if (entries_ <= soft) return;
  const bool is_hard = entries_ > max_entries_;
  const std::size_t spare = is_hard ? 0 : max_entries_ - entries_;
  const auto ticks = static_cast<std::uint8_t>(is_hard ? 0 : 1 + kTicks / 2 * spare / (margin + 1));
  std::size_t budget = is_hard ? max_entries_ * 4 + 64 : 64 * came + 64;
  sweep(ticks, entries_ - (is_hard ? max_entries_ : soft), budget);
}

void Index::sweep(std::uint8_t ticks, std::size_t wanted, std::size_t budget) {
  for (std::size_t turns = 0; wanted > 0 && turns <= 2 * holders_.size(); ++turns) {
    if (sweep_holder_ >= holders_.size()) sweep_holder_ = 0;
    bool is_done = true;
    if (holders_[sweep_holder_] != nullptr) {
      const std::size_t gone = holders_[sweep_holder_]->evict(ticks, wanted, budget, is_done);
      entries_ -= gone;
      evicted_ += gone;
      wanted -= gone;
    }
    if (!is_done) return;
    ++sweep_holder_;
  }
}

std::size_t Index::entry_count() const { return entries_; }

std::size_t Index::parked_count() const {
  std::size_t parked = 0;
  for (const auto& holder : holders_)
    if (holder != nullptr) parked += holder->parked_count();
  return parked;
}

std::size_t Index::bytes() const {
  std::size_t bytes = sizeof *this + tree_.bytes() + batch_.names.size() * 8 + batch_.tokens.size() * 4;
  for (const auto& holder : holders_)
    if (holder != nullptr) bytes += holder->bytes();
  return bytes;
}

std::string Index::find_contradiction() {
  std::size_t entries = 0;
  for (const auto& holder : holders_) {
    if (holder == nullptr) continue;
    entries += holder->entry_count();
    if (std::string found = holder->find_contradiction(); !found.empty()) return found;
  }
  if (entries != entries_) return "entries are counted wrongly";
  return tree_.find_contradiction();
}

}  // namespace dovecote
