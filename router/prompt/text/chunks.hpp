// Chained hashes of a text's chunks: XXH3-64 of (hash before, 8 bytes; the chunk).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../../../prefix_index/core/xxh3.hpp"

namespace dovecote::text {

// Longer ones are hashed in stripes.
inline constexpr std::size_t kMaxShort = 240;

struct Piece {
  const unsigned char* bytes;
  std::size_t size;
};

// Chunks of some pieces with a zero byte between each two of them, read where they lie.
class Chunker {
 public:
  Chunker(std::size_t chunk_bytes, std::uint64_t seed, std::size_t max_chunks)
      : room_(8 + chunk_bytes), before_(seed), max_chunks_(max_chunks) {}

  void read(Piece piece) {
    while (piece.size > 0 && hashes_.size() < max_chunks_) {
      if (filled_ == 8 && room_.size() > kMaxShort && piece.size >= room_.size() - 8) {
        const std::size_t chunk_bytes = room_.size() - 8;
        read_whole(piece.bytes);
        piece = {piece.bytes + chunk_bytes, piece.size - chunk_bytes};
        continue;
      }
      const std::size_t taken = std::min(piece.size, room_.size() - filled_);
      std::memcpy(room_.data() + filled_, piece.bytes, taken);
      piece = {piece.bytes + taken, piece.size - taken};
      filled_ += taken;
      if (filled_ == room_.size()) end_chunk();
    }
  }

  const std::vector<std::uint64_t>& hashes() const { return hashes_; }

 private:
  // Only the first stripe, where the hash before stands, is copied.
  void read_whole(const unsigned char* chunk) {
    unsigned char first[xxh3::kStripeBytes];
    write(first);
    std::memcpy(first + 8, chunk, sizeof first - 8);
    keep(xxh3::hash_stripes(first, chunk + sizeof first - 8, room_.size(), xxh3::kSecret));
  }

  void end_chunk() {
    write(room_.data());
    keep(xxh3::hash(room_.data(), room_.size(), 0));
    filled_ = 8;
  }

  void keep(std::uint64_t hash) {
    before_ = hash;
    // Hashes are handed out as bytes, the least first.
    hashes_.emplace_back();
    write(reinterpret_cast<unsigned char*>(&hashes_.back()));
  }

  void write(unsigned char* to) const {
    for (int byte = 0; byte < 8; ++byte) to[byte] = static_cast<unsigned char>(before_ >> (8 * byte));
  }

  std::vector<unsigned char> room_;
  std::size_t filled_ = 8;
  std::uint64_t before_;
  std::size_t max_chunks_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace dovecote::text
