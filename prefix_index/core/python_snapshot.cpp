// The index as a Python object: a holder's blocks as runs in columns, and back.

#include <cstring>

#include "python_index.hpp"

namespace dovecote::python {
namespace {

// One column of records as bytes, little-endian.
template <typename T, typename Field>
nb::object write_column(const Record* records, std::size_t count, Field field) {
  const nb::object made = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count * sizeof(T))));
  if (!made.is_valid()) throw nb::python_error();
  auto* out = reinterpret_cast<unsigned char*>(PyBytes_AS_STRING(made.ptr()));
  for (std::size_t at = 0; at < count; ++at) {
    unsigned char bytes[8];
    write_little(bytes, field(records[at]));
    std::memcpy(out + at * sizeof(T), bytes, sizeof(T));
  }
  return made;
}

template <typename T>
T read_little(std::string_view column, std::size_t at) {
  T value = 0;
  for (std::size_t byte = sizeof(T); byte-- > 0;)
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(column[at * sizeof(T) + byte]));
  return value;
}

nb::tuple to_tuple(const Run& run, std::size_t first, std::size_t count) {
  static constexpr const char* kTiers[] = {"GPU", "CPU_PINNED", "DISK", "EXTERNAL"};
  const Record* records = run.records.data() + first;
  return nb::make_tuple(
      run.block_tokens, kTiers[run.tier], to_python(run.number), to_python(run.kind), to_python(run.window),
      run.is_doubted, write_column<std::uint64_t>(records, count, [](const Record& each) { return each.name; }),
      write_column<std::uint64_t>(records, count, [](const Record& each) { return each.parent; }),
      write_column<std::uint64_t>(records, count, [](const Record& each) { return each.place; }),
      write_column<std::uint32_t>(records, count, [](const Record& each) { return each.copies; }),
      write_column<std::uint32_t>(records, count, [](const Record& each) { return each.position; }));
}

}  // namespace

nb::list PyIndex::dump(std::uint32_t holder, std::size_t max_records) {
  nb::list told;
  const auto held = lock();
  if (!index_.has_holder(holder)) return told;
  std::vector<Run> runs;
  {
    const Unlocked released;
    runs = index_.holder(holder).dump();
  }
  for (const Run& run : runs)
    for (std::size_t first = 0; first < run.records.size(); first += max_records)
      told.append(to_tuple(run, first, std::min(max_records, run.records.size() - first)));
  return told;
}

std::size_t PyIndex::load(std::uint32_t holder, nb::tuple told) {
  Run run;
  const OptionalNumber size = read_number(told[0]);
  run.block_tokens = size.is_negative || size.bits > kMaxTokens ? 0 : static_cast<std::uint32_t>(size.bits);
  run.tier = read_tier(told[1]);
  run.number = read_number(told[2]);
  if (!told[3].is_none()) run.kind = to_utf8(told[3]);
  run.window = read_number(told[4]);
  run.is_doubted = nb::cast<bool>(told[5]);
  const nb::object columns[] = {told[6], told[7], told[8], told[9], told[10]};
  const std::string_view names = view(columns[0]), parents = view(columns[1]), places = view(columns[2]),
                         copies = view(columns[3]), positions = view(columns[4]);
  const std::size_t count = names.size() / 8;
  if (names.size() != 8 * count || parents.size() != 8 * count || places.size() != 8 * count ||
      copies.size() != 4 * count || positions.size() != 4 * count)
    throw nb::value_error("columns of different lengths");
  const auto held = lock();
  const Unlocked released;
  run.records.reserve(count);
  for (std::size_t at = 0; at < count; ++at)
    run.records.push_back({read_little<std::uint64_t>(names, at), read_little<std::uint64_t>(parents, at),
                           read_little<std::uint64_t>(places, at), read_little<std::uint32_t>(copies, at),
                           read_little<std::uint32_t>(positions, at)});
  return index_.has_holder(holder) ? index_.load(holder, run) : 0;
}

}  // namespace dovecote::python
