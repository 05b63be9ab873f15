// What an event says about identity: names as numbers, the namespace of a chain, the keys of its blocks.
//
// The same rules and bytes as `wire.block_hash` and `prefix_index.namespace`; shared tests hold them together.
#pragma once

#include <string>
#include <string_view>

#include "chain.hpp"
#include "events.hpp"

namespace dovecote {

// An integer name: the 64 bits as they are, but those that are only an unsigned number are moved, so
// that -1 and 2^64 - 1 are two names.
inline Name to_name(std::uint64_t bits, bool is_negative) {
  return bits >> 63 != 0 && !is_negative ? xxh3::avalanche(bits ^ 0xD6E8FEB86659FD93ull) : bits;
}

// A name in bytes, and an integer that fits no 64 bits as its digits.
inline Name to_name(std::string_view data, std::uint64_t seed = 0x5851F42D4C957F2Dull) {
  return xxh3::hash(reinterpret_cast<const unsigned char*>(data.data()), data.size(), seed);
}

// Words of engines and their offloading connectors; kNoTier for one that is not known.
inline Tier to_tier(std::string_view word) {
  if (word == "GPU") return kDevice;
  if (word == "CPU_PINNED" || word == "CPU") return kHost;
  if (word == "DISK") return kDisk;
  return word == "EXTERNAL" ? kExternal : kNoTier;
}

inline void append_sized(std::string& to, std::string_view data) {
  for (int byte = 0; byte < 4; ++byte) to += static_cast<char>(data.size() >> (8 * byte));
  to += data;
}

inline void append_text(std::string& to, const std::optional<std::string_view>& text) {
  to += text ? '\1' : '\0';
  if (text) append_sized(to, *text);
}

inline Place hash_text(const std::string& data, std::uint64_t seed) {
  return xxh3::hash(reinterpret_cast<const unsigned char*>(data.data()), data.size(), seed);
}

inline Place namespace_seed(std::string_view model, const std::optional<std::string_view>& adapter,
                            const std::optional<std::string_view>& salt, bool bigram, std::uint64_t secret) {
  std::string data("dovecote-namespace-1\0", 21);
  append_text(data, model);
  append_text(data, adapter);
  append_text(data, salt);
  data += bigram ? '\1' : '\0';
  return hash_text(data, secret);
}

// Parent of a block whose content is more than its tokens.
inline Place fold_keys(Place parent, const BlockKeys& keys) {
  std::string data("dovecote-keys-1\0", 16);
  unsigned char bytes[8];
  write_little(bytes, parent);
  data.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
  for (const ContentKey& key : keys) {
    if (key.kind != ContentKey::Kind::kText) data += static_cast<char>(key.kind);
    if (key.kind != ContentKey::Kind::kBytes) data += '\1';
    append_sized(data, key.data);
  }
  return hash_text(data, 0);
}

//: What the keys of an event mean: the salt of its chain, and the keys left for each block.
struct KeyReading {
  std::optional<std::string_view> salt;
  //: Empty where no block has any.
  std::vector<BlockKeys> keys;
};

// vLLM puts the adapter's name first among a block's keys, and the salt last among the first block's.
inline KeyReading read_keys(const Event& event, const Batch& batch) {
  KeyReading reading{event.cache_salt, {}};
  if (!event.keys) return reading;
  reading.keys = batch.keys[*event.keys];
  const auto is_text = [](const ContentKey& key, std::string_view text) {
    return key.kind == ContentKey::Kind::kText && key.data == text;
  };
  for (BlockKeys& keys : reading.keys)
    if (event.lora_name && !keys.empty() && is_text(keys.front(), *event.lora_name)) keys.erase(keys.begin());
  if (!event.has_parent && event.unlisted() == 0 && !reading.keys.empty()) {
    BlockKeys& first = reading.keys.front();
    if (!event.cache_salt && !first.empty() && first.back().kind == ContentKey::Kind::kText) {
      first.pop_back();
      reading.salt = batch.keys[*event.keys].front().back().data;
    } else if (event.cache_salt) {
      std::erase_if(first, [&](const ContentKey& key) { return is_text(key, *event.cache_salt); });
    }
  }
  bool has_any = false;
  for (const BlockKeys& keys : reading.keys) has_any |= !keys.empty();
  if (!has_any) reading.keys.clear();
  return reading;
}

// Hashes of consecutive blocks, keys included.
inline void chain_with_keys(const std::uint32_t* tokens, std::size_t blocks, std::size_t block_tokens, Place parent,
                            const std::vector<BlockKeys>& keys, Place* out) {
  if (keys.empty()) return chain_blocks(tokens, blocks, block_tokens, parent, out);
  for (std::size_t at = 0; at < blocks; ++at) {
    if (at < keys.size() && !keys[at].empty()) parent = fold_keys(parent, keys[at]);
    chain_blocks(tokens + at * block_tokens, 1, block_tokens, parent, out + at);
    parent = out[at];
  }
}

}  // namespace dovecote
