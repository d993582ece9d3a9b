// A small binary writer and reader for messages between ranks of one job (same program, same
// byte order). Not a file format, not a wire contract across versions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace skein {

class ByteWriter {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void Put(std::string_view text) {
    Put(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }
  // Of numbers that lie one behind the other.
  template <typename List>
    requires std::is_arithmetic_v<typename List::value_type>
  void Put(const List& values) {
    Put(static_cast<uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(typename List::value_type));
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what ByteWriter wrote, in the same order. A read past the end gives zeros and makes ok()
// false, so that a whole message is parsed first and judged once.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Get(T& value) {
    value = T{};
    if (!Has(sizeof(T))) return;
    bytes_.copy(reinterpret_cast<char*>(&value), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
  }
  void Get(std::string& text) {
    uint64_t size = 0;
    Get(size);
    text.clear();
    if (!Has(size)) return;
    text.assign(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
  }
  template <typename List>
    requires std::is_arithmetic_v<typename List::value_type>
  void Get(List& values) {
    using T = typename List::value_type;
    uint64_t size = 0;
    Get(size);
    values.clear();
    if (size > bytes_.size() / sizeof(T)) ok_ = false;
    if (!ok_) return;
    values.resize(size);
    bytes_.copy(reinterpret_cast<char*>(values.data()), size * sizeof(T));
    bytes_.remove_prefix(size * sizeof(T));
  }
  bool ok() const { return ok_; }
  // All was read, and nothing is left.
  bool Done() const { return ok_ && bytes_.empty(); }

 private:
  bool Has(uint64_t size) {
    if (size > bytes_.size()) ok_ = false;
    return ok_;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace skein
