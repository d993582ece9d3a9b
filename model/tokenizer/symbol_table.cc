#include "model/tokenizer/symbol_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

constexpr uint32_t kAscii = 0x80;
constexpr size_t kMaxSymbols = 0x80;  // what a byte has beyond ASCII

}  // namespace

absl::StatusOr<SymbolTable> SymbolTable::Create(const std::vector<CodePointSet>& sets) {
  std::vector<uint32_t> starts = {kAscii};  // where runs of code points of one symbol begin
  for (const CodePointSet& set : sets) {
    starts.insert(starts.end(), set.edges().begin(), set.edges().end());
  }
  std::erase_if(starts, [](uint32_t start) { return start < kAscii || start >= kCodePoints; });
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());

  SymbolTable table;
  std::vector<uint8_t> all(kCodePoints);
  for (uint32_t c = 0; c < kAscii; ++c) all[c] = static_cast<uint8_t>(c);
  std::map<std::vector<bool>, uint8_t> symbols;  // by the sets that contain it
  for (size_t i = 0; i < starts.size(); ++i) {
    std::vector<bool> in;
    for (const CodePointSet& set : sets) in.push_back(set.Contains(starts[i]));
    const auto next = static_cast<uint8_t>(kAscii + symbols.size());
    const auto [symbol, is_new] = symbols.try_emplace(std::move(in), next);
    if (is_new) table.examples_.push_back(starts[i]);
    if (symbols.size() > kMaxSymbols) {
      return absl::UnimplementedError(
          absl::StrCat("tells more than ", kMaxSymbols, " kinds of characters beyond ASCII apart"));
    }
    const uint32_t end = i + 1 < starts.size() ? starts[i + 1] : kCodePoints;
    std::fill(all.begin() + starts[i], all.begin() + end, symbol->second);
  }

  std::map<std::array<uint8_t, kBlock>, uint16_t> known;
  for (uint32_t b = 0; b < kCodePoints / kBlock; ++b) {
    std::array<uint8_t, kBlock> block;
    std::copy_n(all.begin() + b * kBlock, kBlock, block.begin());
    const auto [place, is_new] =
        known.try_emplace(block, static_cast<uint16_t>(table.blocks_.size()));
    if (is_new) table.blocks_.push_back(block);
    table.index_[b] = place->second;
  }
  return table;
}

std::vector<uint8_t> SymbolTable::Symbols(const CodePointSet& set) const {
  std::vector<uint8_t> symbols;
  for (uint32_t c = 0; c < kAscii; ++c) {
    if (set.Contains(c)) symbols.push_back(static_cast<uint8_t>(c));
  }
  for (size_t i = 0; i < examples_.size(); ++i) {
    if (set.Contains(examples_[i])) symbols.push_back(static_cast<uint8_t>(kAscii + i));
  }
  return symbols;
}

std::string_view SymbolTable::Write(std::string_view text, std::string& buffer) const {
  uint8_t bits = 0;
  for (const char c : text) bits |= static_cast<uint8_t>(c);
  if (bits < kAscii) return text;
  buffer.resize(text.size());
  char* out = buffer.data();
  for (size_t at = 0; at < text.size();) {
    *out++ = static_cast<char>(Symbol(ReadCodePoint(text, at)));
  }
  return {buffer.data(), static_cast<size_t>(out - buffer.data())};
}

}  // namespace skein::model
