// Events of `wire.events` as the core's events: read from Python objects, with the interpreter's lock held.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "events.hpp"
#include "identity.hpp"

namespace dovecote::python {

namespace nb = nanobind;

inline std::string to_utf8(nb::handle text) {
  const nb::object data = text.attr("encode")("utf-8", "surrogatepass");
  char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(data.ptr(), &bytes, &size) != 0) throw nb::python_error();
  return {bytes, static_cast<std::size_t>(size)};
}

inline std::string_view view(nb::handle data) {
  char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(data.ptr(), &bytes, &size) != 0) throw nb::python_error();
  return {bytes, static_cast<std::size_t>(size)};
}

inline std::string to_digits(nb::handle number) { return to_utf8(nb::str(number)); }

inline Name read_name(nb::handle name) {
  if (PyBytes_Check(name.ptr())) return to_name(view(name));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(name.ptr(), &overflow);
  if (value == -1 && overflow == 0 && PyErr_Occurred()) throw nb::python_error();
  if (overflow == 0) return to_name(static_cast<std::uint64_t>(value), value < 0);
  if (overflow > 0) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(name.ptr());
    if (!PyErr_Occurred()) return to_name(large, false);
    PyErr_Clear();
  }
  return to_name(to_digits(name), 1);
}

inline std::optional<std::string_view> read_text(Batch& batch, nb::handle text) {
  if (text.is_none()) return std::nullopt;
  return batch.keep(to_utf8(text));
}

template <typename Read, typename T>
std::size_t read_numbers(nb::handle values, Room<T>& room, std::size_t& at, Read read) {
  const nb::object fast = nb::steal(PySequence_Fast(values.ptr(), "a sequence is needed"));
  if (!fast.is_valid()) throw nb::python_error();
  const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(fast.ptr()));
  PyObject** items = PySequence_Fast_ITEMS(fast.ptr());
  at = room.size();
  T* out = room.extend(count);
  for (std::size_t index = 0; index < count; ++index) out[index] = read(nb::handle(items[index]));
  return count;
}

// A small number without a call, where the interpreter lets look at it: tokens are many.
inline bool read_small(PyObject* number, std::uint32_t& value) {
#if PY_VERSION_HEX >= 0x030C0000
  auto* integer = reinterpret_cast<PyLongObject*>(number);
  if (!PyLong_CheckExact(number) || !PyUnstable_Long_IsCompact(integer)) return false;
  const Py_ssize_t read = PyUnstable_Long_CompactValue(integer);
  if (read < 0) return false;
  value = static_cast<std::uint32_t>(read);
  return true;
#else
  if (!PyLong_CheckExact(number) || (Py_SIZE(number) != 1 && Py_SIZE(number) != 0)) return false;
  value = Py_SIZE(number) == 0 ? 0 : reinterpret_cast<PyLongObject*>(number)->ob_digit[0];
  return true;
#endif
}

inline std::uint32_t read_token(nb::handle token) {
  if (std::uint32_t small; read_small(token.ptr(), small)) [[likely]]
    return small;
  const unsigned long value = PyLong_AsUnsignedLong(token.ptr());
  if (PyErr_Occurred() || value > 0xFFFF'FFFFul) {
    PyErr_Clear();
    throw nb::value_error("token ids must be integers from 0 to 4294967295");
  }
  return static_cast<std::uint32_t>(value);
}

inline Tier read_tier(nb::handle medium) { return to_tier(to_utf8(medium)); }

inline OptionalNumber read_number(nb::handle number) {
  if (number.is_none()) return {};
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow > 0) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(number.ptr());
    if (!PyErr_Occurred()) return {true, false, large};
    PyErr_Clear();
  }
  if (overflow != 0) return {true, false, to_name(to_digits(number), 2)};
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return {true, value < 0, static_cast<std::uint64_t>(value)};
}

// The number as it was given; of one that fits no 64 bits, what it is known by.
inline nb::object to_python(const OptionalNumber& number) {
  if (!number.is_given) return nb::none();
  return number.is_negative ? nb::object(nb::int_(static_cast<std::int64_t>(number.bits)))
                            : nb::object(nb::int_(number.bits));
}

inline nb::object to_python(const std::optional<std::string>& text) {
  if (!text) return nb::none();
  return nb::steal(PyUnicode_DecodeUTF8(text->data(), static_cast<Py_ssize_t>(text->size()), "surrogatepass"));
}

inline ContentKey read_key(nb::handle key) {
  if (PyBytes_Check(key.ptr())) return {ContentKey::Kind::kBytes, std::string(view(key))};
  if (PyUnicode_Check(key.ptr())) return {ContentKey::Kind::kText, to_utf8(key)};
  return {ContentKey::Kind::kNumber, to_digits(key)};
}

inline void read_keys(Batch& batch, Event& event, nb::handle keys) {
  if (keys.is_none()) return;
  std::vector<BlockKeys> blocks;
  bool has_any = false;
  for (const nb::handle block : keys) {
    BlockKeys& read = blocks.emplace_back();
    if (!block.is_none())
      for (const nb::handle key : block) read.push_back(read_key(key));
    has_any |= !read.empty();
  }
  if (!has_any) return;
  event.keys = batch.keys.size();
  batch.keys.push_back(std::move(blocks));
}

inline Event read_removed(nb::handle from, Batch& batch) {
  Event event;
  event.kind = EventKind::kRemoved;
  event.name_count =
      static_cast<std::uint32_t>(read_numbers(from.attr("block_hashes"), batch.names, event.names_at, read_name));
  event.tier = read_tier(from.attr("medium"));
  event.group = read_number(from.attr("group_idx"));
  return event;
}

inline Event read_stored(nb::handle from, Batch& batch) {
  Event event = read_removed(from, batch);
  event.kind = EventKind::kStored;
  const nb::object parent = from.attr("parent_block_hash");
  event.has_parent = !parent.is_none();
  if (event.has_parent) event.parent = read_name(parent);
  event.token_count =
      static_cast<std::uint32_t>(read_numbers(from.attr("token_ids"), batch.tokens, event.tokens_at, read_token));
  const OptionalNumber size = read_number(from.attr("block_tokens"));
  event.block_tokens = size.is_negative || size.bits > kMaxTokens ? 0 : static_cast<std::uint32_t>(size.bits);
  event.group_kind = read_text(batch, from.attr("group_kind"));
  event.window = read_number(from.attr("window_tokens"));
  event.lora_name = read_text(batch, from.attr("lora_name"));
  event.cache_salt = read_text(batch, from.attr("cache_salt"));
  if (const nb::object number = from.attr("lora_id"); !number.is_none()) event.lora_id = batch.keep(to_digits(number));
  read_keys(batch, event, from.attr("extra_keys"));
  return event;
}

}  // namespace dovecote::python
