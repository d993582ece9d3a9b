#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

constexpr uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

constexpr bool OccursInUtf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

absl::StatusOr<Bpe> Bpe::Create(const Vocabulary& vocabulary,
                                const std::vector<std::pair<std::string, std::string>>& merges,
                                bool ignore_merges, int32_t unknown) {
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) {
    const auto token = vocabulary.find(SpellByte(static_cast<uint8_t>(byte)));
    int32_t& id = bpe.options_.bytes[static_cast<size_t>(byte)];
    id = token == vocabulary.end() ? unknown : token->second;
    if (id < 0 && OccursInUtf8(byte)) {
      return absl::InvalidArgumentError(absl::StrCat("the vocabulary has no token for byte ", byte,
                                                     " (\"", SpellByte(static_cast<uint8_t>(byte)),
                                                     "\"): it is not a byte-level vocabulary"));
    }
  }

  SKEIN_RETURN_IF_ERROR(bpe.AddMerges(vocabulary, merges));
  if (ignore_merges) {
    for (const auto& [token, id] : vocabulary) {
      if (std::optional<std::string> bytes = UnspellBytes(token)) bpe.whole_[*bytes] = id;
    }
  }
  return bpe;
}

absl::StatusOr<Bpe> Bpe::CreateOfCharacters(
    const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
    CharacterOptions options) {
  Bpe bpe;
  bpe.from_characters_ = true;
  bpe.options_ = std::move(options);
  for (const auto& [token, id] : vocabulary) {
    if (token.empty() || FindInvalidUtf8(token) != std::string_view::npos) continue;
    size_t end = 0;
    const uint32_t code_point = ReadCodePoint(token, end);
    if (end == token.size()) bpe.character_ids_[code_point] = id;
  }
  SKEIN_RETURN_IF_ERROR(bpe.AddMerges(vocabulary, merges));
  if (bpe.options_.ignore_merges) {
    for (const auto& [token, id] : vocabulary) bpe.whole_[token] = id;
  }
  return bpe;
}

absl::Status Bpe::AddMerges(const Vocabulary& vocabulary,
                            const std::vector<std::pair<std::string, std::string>>& merges) {
  merges_.reserve(merges.size());
  rank_.reserve(merges.size());
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
    merges_.push_back({ids[0], ids[1], ids[2]});
    rank_[PairKey(ids[0], ids[1])] = static_cast<uint32_t>(rank);
  }
  return absl::OkStatus();
}

void Bpe::Start(std::string_view text, std::vector<Work::Part>& parts) const {
  parts.clear();
  const auto add = [&parts](int32_t id) {
    const auto at = static_cast<int32_t>(parts.size());
    parts.push_back({id, at - 1, at + 1});
  };
  if (!from_characters_) {
    for (const char byte : text) add(options_.bytes[static_cast<unsigned char>(byte)]);
  } else {
    bool unknown = false;  // characters before this one become `unknown`, which is not there yet
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const uint32_t code_point = ReadCodePoint(text, at);
      if (const auto known = character_ids_.find(code_point); known != character_ids_.end()) {
        if (std::exchange(unknown, false)) add(options_.unknown);
        add(known->second);
        continue;
      }
      const std::string_view bytes = text.substr(begin, at - begin);
      const auto id_of = [this](char byte) {
        return options_.bytes[static_cast<unsigned char>(byte)];
      };
      if (std::none_of(bytes.begin(), bytes.end(), [&](char byte) { return id_of(byte) < 0; })) {
        // As in the `tokenizers` library, bytes come before a pending `unknown`.
        for (const char byte : bytes) add(id_of(byte));
      } else if (options_.unknown >= 0) {
        if (unknown && !options_.fuse_unknown) add(options_.unknown);
        unknown = true;
      }
    }
    if (unknown) add(options_.unknown);
  }
  if (!parts.empty()) parts.back().next = -1;
}

bool Bpe::AddCandidate(int32_t at, Work& work) const {
  const int32_t next = work.parts[at].next;
  if (next < 0) return false;
  const auto rank = rank_.find(PairKey(work.parts[at].id, work.parts[next].id));
  if (rank == rank_.end()) return false;
  const std::vector<uint32_t>& orders = options_.orders;
  const uint32_t order = orders.empty() ? rank->second : orders[rank->second];
  work.heap.push_back(static_cast<uint64_t>(order) << 32 | static_cast<uint32_t>(at));
  return true;
}

void Bpe::Encode(std::string_view text, Work& work, std::vector<int32_t>& ids,
                 const std::vector<bool>* hidden) const {
  if (text.empty()) return;
  work.bytes += static_cast<int64_t>(text.size());
  if (!whole_.empty()) {
    const auto token = whole_.find(std::string(text));
    if (token != whole_.end() &&
        (hidden == nullptr || !(*hidden)[static_cast<size_t>(token->second)])) {
      ids.push_back(token->second);
      return;
    }
  }

  auto& [parts, heap, bytes, candidates] = work;
  Start(text, parts);
  if (parts.empty()) return;
  const auto size = static_cast<int32_t>(parts.size());
  // A candidate is rank << 32 | position, so that the smallest is the next to merge.
  heap.clear();
  for (int32_t i = 0; i < size; ++i) AddCandidate(i, work);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto at = static_cast<int32_t>(heap.back() & 0xFFFFFFFF);
    heap.pop_back();
    ++candidates;

    // Parts that have changed since then left their candidates behind.
    Work::Part& left = parts[at];
    if (left.next < 0) continue;
    Work::Part& right = parts[left.next];
    if (!options_.orders.empty()) {  // the order tells of some merges: the pair tells which
      const auto now = rank_.find(PairKey(left.id, right.id));
      if (now == rank_.end() || options_.orders[now->second] != rank) continue;
      rank = now->second;
    }
    const Merge& merge = merges_[rank];
    if (left.id != merge.left || right.id != merge.right) continue;
    if (hidden != nullptr && (*hidden)[static_cast<size_t>(merge.result)]) continue;

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
