// The index: attaching, applying, making room.

#include "index.hpp"

#include <algorithm>

namespace dovecote {

std::uint32_t Index::attach(HolderSettings settings, const std::vector<std::string>& pools) {
  std::uint32_t number;
  if (free_holders_.empty()) {
    number = static_cast<std::uint32_t>(holders_.size());
    holders_.emplace_back();
  } else {
    number = free_holders_.back();
    free_holders_.pop_back();
  }
  std::vector<Pool*> own;
  for (const std::string& name : pools) own.push_back(&pool(name, settings.model));
  holders_[number] = std::make_unique<Holder>(commons_, number, std::move(settings), std::move(own));
  return number;
}

Pool& Index::pool(const std::string& name, const std::string& model) {
  std::unique_ptr<Pool>& found = pools_[{name, model}];
  if (found == nullptr) found = std::make_unique<Pool>(tree_);
  return *found;
}

void Index::detach(std::uint32_t holder) {
  clear(holder);
  holders_[holder]->close();
  holders_[holder].reset();
  commons_.rootless.erase(holder);
  free_holders_.push_back(holder);
}

void Index::apply(std::uint32_t holder, const Batch& batch, const Event& event, Delta& delta) {
  tree_.tidy();
  Holder& target = *holders_[holder];
  const std::size_t before = target.entry_count();
  if (event.kind == EventKind::kStored)
    target.store(batch, event, delta);
  else if (event.kind == EventKind::kRemoved)
    target.remove(batch, event, delta);
  else
    target.empty();
  make_room(holder, before, delta);
  if (!tree_.is_settled()) tree_.settle(kSettleFloor + 16 * std::size_t{event.name_count});
}

std::size_t Index::load(std::uint32_t holder, const Run& run) {
  tree_.tidy();
  Delta delta;
  const std::size_t before = holders_[holder]->entry_count();
  const std::size_t taken = holders_[holder]->load(run, delta);
  make_room(holder, before, delta);
  if (!tree_.is_settled()) tree_.settle(kSettleFloor + 16 * run.records.size());
  return taken;
}

std::size_t Index::clear(std::uint32_t holder) {
  const std::size_t before = holders_[holder]->entry_count();
  const std::size_t counted = holders_[holder]->forget();
  entries_ -= before;
  return counted;
}

std::size_t Index::doubt(std::uint32_t holder) {
  const std::size_t before = holders_[holder]->entry_count();
  const std::size_t counted = holders_[holder]->doubt();
  entries_ += holders_[holder]->entry_count() - before;
  return counted;
}

std::size_t Index::drop_pool(const std::string& name) {
  std::size_t dropped = 0;
  for (auto& [key, pool] : pools_) {
    if (key.first != name) continue;
    dropped += pool->size();
    pool->clear();
  }
  return dropped;
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

std::size_t Index::pooled_count() const {
  std::size_t places = 0;
  for (const auto& [key, pool] : pools_) places += pool->size();
  return places;
}

// Count what came in; above a bound, look over a few entries for each new one and forget the old ones. The nearer
// the hard bound, the younger may be what goes, so that the bound always holds.
void Index::make_room(std::uint32_t storing, std::size_t before, Delta& delta) {
  const std::size_t now = holders_[storing]->entry_count();
  entries_ += now - before;
  if (!holders_[storing]->pools().empty()) make_room_in_pools(storing);
  if (now <= before) return;
  const std::size_t came = now - before, smaller = std::min(max_blocks_, max_holder_blocks_);
  stored_in_tick_ += came;
  if (stored_in_tick_ * kTicks > smaller) {
    stored_in_tick_ = 0;
    tree_.advance_tick();
  }
  make_room_of(storing, came, delta);
  const std::size_t held = entry_count(), margin = max_blocks_ / 16, soft = max_blocks_ - margin;
  if (held <= soft) return;
  if (held > max_blocks_) return make_room_at_once(storing, delta);
  const std::size_t scale = std::min<std::size_t>(24, max_blocks_ / std::max<std::size_t>(1, smaller));
  const std::size_t ticks = 1 + kTicks / 2 * scale * (max_blocks_ - held) / (margin + 1);
  sweep(static_cast<std::uint8_t>(ticks), held - soft, 64 * came + 64, storing, delta);
}

void Index::make_room_at_once(std::uint32_t storing, Delta& delta) {
  // As in `make_room_of`: who looks at all makes room for more than one.
  for (const std::uint8_t ticks : {1, 0, 0})
    if (const std::size_t held = entry_count(); held > max_blocks_)
      sweep(ticks, held - max_blocks_ + max_blocks_ / 16, ~std::size_t{0}, storing, delta);
  for (Pool* pool = fullest_pool(); entry_count() > max_blocks_ && pool != nullptr && pool->remove_oldest();)
    ++evicted_, pool = fullest_pool();
}

Pool* Index::fullest_pool() const {
  Pool* fullest = nullptr;
  for (const auto& [key, pool] : pools_)
    if (fullest == nullptr || pool->size() > fullest->size()) fullest = pool.get();
  return fullest;
}

// The holder that stored has too many blocks, or nearly so: its oldest go.
void Index::make_room_of(std::uint32_t storing, std::size_t came, Delta& delta) {
  Holder& holder = *holders_[storing];
  const std::size_t now = holder.entry_count(), margin = max_holder_blocks_ >= 1024 ? max_holder_blocks_ / 16 : 0;
  const bool is_hard = now > max_holder_blocks_;
  if (now <= max_holder_blocks_ - margin) return;
  std::size_t wanted = now - max_holder_blocks_ + margin, budget = 64 * came + 64;
  auto ticks = static_cast<std::uint8_t>(1 + kTicks / 2 * (is_hard ? 0 : max_holder_blocks_ - now) / (margin + 1));
  if (is_hard) {
    // All are looked at, so as many go as many more stores will fill: each of those costs a few looks, then.
    ticks = holder.find_age(wanted);
    budget = ~std::size_t{0};
  }
  bool is_done = false;
  std::size_t gone = holder.evict(ticks, wanted, budget, is_done, delta);
  // From where the last look ended to the end, and then from the start: again while some moved as others went.
  for (std::size_t more = 1; is_hard && gone < wanted && more > 0; gone += more)
    more = holder.evict(ticks, wanted - gone, budget, is_done, delta);
  entries_ -= gone;
  evicted_ += gone;
}

// A pool bounds what it has like a holder, and gives way where all together have too much and none has more.
void Index::make_room_in_pools(std::uint32_t storing) {
  Pool& pool = *holders_[storing]->pools().front();
  while (pool.size() > max_holder_blocks_ && pool.remove_oldest()) ++evicted_;
  if (entry_count() <= max_blocks_) return;
  std::size_t most = 0;
  for (const auto& holder : holders_)
    if (holder != nullptr) most = std::max(most, holder->entry_count());
  while (entry_count() > max_blocks_ && fullest_pool()->size() > most && fullest_pool()->remove_oldest()) ++evicted_;
}

void Index::sweep(std::uint8_t ticks, std::size_t wanted, std::size_t budget, std::uint32_t storing, Delta& delta) {
  Delta of_others;
  for (std::size_t turns = 0; wanted > 0 && turns <= 2 * holders_.size(); ++turns) {
    if (sweep_holder_ >= holders_.size()) sweep_holder_ = 0;
    bool is_done = true;
    if (holders_[sweep_holder_] != nullptr) {
      Delta& told = sweep_holder_ == storing ? delta : of_others;
      const std::size_t gone = holders_[sweep_holder_]->evict(ticks, wanted, budget, is_done, told);
      of_others.clear();
      entries_ -= gone;
      evicted_ += gone;
      wanted -= gone;
    }
    if (!is_done) return;
    ++sweep_holder_;
  }
}

std::size_t Index::parked_count() const {
  std::size_t parked = 0;
  for (const auto& holder : holders_)
    if (holder != nullptr) parked += holder->parked_count();
  return parked;
}

std::size_t Index::bytes() const {
  std::size_t bytes = sizeof *this + tree_.bytes() + batch_.names.bytes() + batch_.tokens.bytes();
  for (const auto& holder : holders_)
    if (holder != nullptr) bytes += holder->bytes();
  for (const auto& [key, pool] : pools_) bytes += pool->bytes();
  return bytes;
}

std::string Index::find_contradiction() {
  std::size_t entries = 0;
  for (const auto& holder : holders_) {
    if (holder == nullptr) continue;
    entries += holder->entry_count();
    if (std::string found = holder->find_contradiction(); !found.empty()) return found;
    if (holder->entry_count() > max_holder_blocks_) return "a holder has more blocks than the cap";
  }
  if (entries != entries_) return "entries are counted wrongly";
  if (entry_count() > max_blocks_) return "there are more blocks than the cap of all";
  return tree_.find_contradiction();
}

}  // namespace dovecote
