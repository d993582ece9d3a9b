#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "model/tokenizer/byte_alphabet.h"

namespace skein::model {
namespace {

constexpr uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

constexpr bool OccursInUtf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

absl::StatusOr<Bpe> Bpe::Create(const Vocabulary& vocabulary,
                                const std::vector<std::pair<std::string, std::string>>& merges,
                                bool ignore_merges) {
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) {
    const auto token = vocabulary.find(SpellByte(static_cast<uint8_t>(byte)));
    bpe.byte_ids_[byte] = token == vocabulary.end() ? -1 : token->second;
    if (bpe.byte_ids_[byte] < 0 && OccursInUtf8(byte)) {
      return absl::InvalidArgumentError(absl::StrCat("the vocabulary has no token for byte ", byte,
                                                     " (\"", SpellByte(static_cast<uint8_t>(byte)),
                                                     "\"): it is not a byte-level vocabulary"));
    }
  }

  bpe.merges_.reserve(merges.size());
  bpe.rank_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    std::array<int32_t, 3> ids;  // left, right, result
    const std::array<std::string, 3> tokens = {left, right, left + right};
    for (int i = 0; i < 3; ++i) {
      const auto token = vocabulary.find(tokens[i]);
      if (token == vocabulary.end()) {
        return absl::InvalidArgumentError(absl::StrCat("merge ", rank, " (\"", left, "\", \"",
                                                       right, "\"): the vocabulary has no token \"",
                                                       tokens[i], "\""));
      }
      ids[i] = token->second;
    }
    bpe.merges_.push_back({ids[0], ids[1], ids[2]});
    bpe.rank_[PairKey(ids[0], ids[1])] = static_cast<uint32_t>(rank);
  }

  if (ignore_merges) {
    for (const auto& [token, id] : vocabulary) {
      if (std::optional<std::string> bytes = UnspellBytes(token)) bpe.whole_[*bytes] = id;
    }
  }
  return bpe;
}

bool Bpe::AddCandidate(int32_t at, Work& work) const {
  const int32_t next = work.parts[at].next;
  if (next < 0) return false;
  const auto rank = rank_.find(PairKey(work.parts[at].id, work.parts[next].id));
  if (rank == rank_.end()) return false;
  work.heap.push_back(static_cast<uint64_t>(rank->second) << 32 | static_cast<uint32_t>(at));
  return true;
}

void Bpe::Encode(std::string_view text, Work& work, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  work.bytes += static_cast<int64_t>(text.size());
  if (!whole_.empty()) {
    if (const auto token = whole_.find(std::string(text)); token != whole_.end()) {
      ids.push_back(token->second);
      return;
    }
  }

  auto& [parts, heap, bytes, candidates] = work;
  const auto size = static_cast<int32_t>(text.size());
  parts.resize(text.size());
  for (int32_t i = 0; i < size; ++i) {
    parts[i] = {byte_ids_[static_cast<unsigned char>(text[i])], i - 1, i + 1 < size ? i + 1 : -1};
  }
  // A candidate is rank << 32 | position, so that the smallest is the next to merge.
  heap.clear();
  for (int32_t i = 0; i < size; ++i) AddCandidate(i, work);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Merge& merge = merges_[heap.back() >> 32];
    const auto at = static_cast<int32_t>(heap.back() & 0xFFFFFFFF);
    heap.pop_back();
    ++candidates;

    // Parts that have changed since then left their candidates behind.
    Work::Part& left = parts[at];
    if (left.id != merge.left || left.next < 0) continue;
    Work::Part& right = parts[left.next];
    if (right.id != merge.right) continue;

    left.id = merge.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) parts[left.next].previous = at;
    if (AddCandidate(at, work)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (left.previous >= 0 && AddCandidate(left.previous, work)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (int32_t i = 0; i >= 0; i = parts[i].next) ids.push_back(parts[i].id);
}

}  // namespace skein::model
