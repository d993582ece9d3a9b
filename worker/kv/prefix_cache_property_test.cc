// Random sequences come, grow, fork and go over a pool that is too small for them, and a naive
// model says after every operation what pool and cache must say. The model keeps what each page
// holds as the whole text up to its end, counts users by looking at all sequences, and finds the
// page to evict by looking at all pages.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/kv/page_pool.h"
#include "worker/kv/prefix_cache.h"

namespace skein::worker {
namespace {

using Text = std::vector<int32_t>;

constexpr int64_t kPageSize = 2;
constexpr int64_t kPages = 24;
constexpr int64_t kLongest = 14;  // tokens of a sequence
constexpr size_t kSequences = 6;

class Simulation {
 public:
  // Where there is a window, sequences give back what they do not see any more.
  explicit Simulation(uint32_t seed, int64_t window) : random_(seed), window_(window) {}

  void Step() {
    if (sequences_.size() > kSequences) return End();
    switch (Random(0, 9)) {
      case 0:
      case 1:
        return Start();
      case 2:
      case 3:
        return Grow();
      case 4:
      case 5:
        return Fork();
      case 6:
      case 7:
        return End();
      case 8:
        return EvictSome(Random(-1, 3));
      case 9:
        return Look();
    }
  }

  void Finish() {
    while (!sequences_.empty()) End();
    Check();
    EXPECT_EQ(pool_.used_pages(), 0);
    EXPECT_EQ(pool_.free_pages() + pool_.cached_pages(), kPages);
    EvictSome(kPages);
    EXPECT_EQ(pool_.free_pages(), kPages);
  }

  void Check() const {
    const std::map<int32_t, int32_t> users = Users();
    std::set<int32_t> cached;
    EXPECT_EQ(cache_.nodes(), static_cast<int64_t>(tree_.size()));
    for (const auto& [prefix, page] : tree_) {
      EXPECT_TRUE(page == kHollow || cached.insert(page).second) << "one page for two prefixes";
      EXPECT_TRUE(prefix.size() == kPageSize ||
                  tree_.count(Text(prefix.begin(), prefix.end() - kPageSize)))
          << "a child outlived its parent";
    }
    int64_t used = 0, shared = 0, idle = 0;
    for (int32_t page = 0; page < kPages; ++page) {
      const int32_t n = users.count(page) ? users.at(page) : 0;
      EXPECT_EQ(pool_.users(page), n);
      EXPECT_EQ(pool_.cached(page), cached.count(page) == 1);
      used += n > 0;
      shared += n > 1;
      idle += n == 0 && cached.count(page);
    }
    EXPECT_EQ(pool_.used_pages(), used);
    EXPECT_EQ(pool_.shared_pages(), shared);
    EXPECT_EQ(pool_.cached_pages(), static_cast<int64_t>(cached.size()));
    EXPECT_EQ(pool_.idle_pages(), idle);
    EXPECT_EQ(pool_.free_pages(), kPages - used - idle);
    for (const Sequence& sequence : sequences_) {
      for (size_t i = sequence.gone; i < sequence.pages.size(); ++i) {
        EXPECT_EQ(held_.at(sequence.pages[i]), Prefix(sequence.text, i + 1))
            << "a page holds other text than its sequence";
      }
    }
  }

  // What happened, so that it is not nothing.
  int64_t hits = 0, moved = 0, copied = 0, evicted = 0, hollowed = 0, filled = 0;

 private:
  struct Sequence {
    Text text;
    std::vector<int32_t> pages;
    int64_t gone = 0;
    PrefixPlace kept;
  };
  static constexpr int32_t kHollow = -1;  // a prefix that lost its page, and has others behind it

  int64_t Random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Text RandomText(int64_t length) {
    Text text(length);
    for (int32_t& token : text) token = static_cast<int32_t>(Random(0, 1));
    return text;
  }
  // The text up to the end of the `pages`-th page.
  static Text Prefix(const Text& text, int64_t pages) {
    const auto size = std::min<int64_t>(text.size(), pages * kPageSize);
    return Text(text.begin(), text.begin() + size);
  }
  std::map<int32_t, int32_t> Users() const {
    std::map<int32_t, int32_t> users;
    for (const Sequence& sequence : sequences_) {
      for (int32_t page : Held(sequence)) ++users[page];
    }
    return users;
  }

  static absl::Span<const int32_t> Held(const Sequence& sequence) {
    return absl::MakeConstSpan(sequence.pages).subspan(sequence.gone);
  }
  // Counts the first pages that a row at `position` does not see, position by position.
  int64_t Unseen(int64_t position) const {
    int64_t seen = window_ > 0 ? std::min(window_, position + 1) : position + 1;
    while (seen > 1 && (position - seen + 1) % kPageSize != 0) ++seen;  // the page's other tokens
    return (position - seen + 1) / kPageSize;
  }

  // Pages of the model's tree for the text, of at most `limit` tokens, behind which a row has all
  // that it sees.
  std::vector<int32_t> Cached(const Text& text, int64_t limit) const {
    std::vector<int32_t> pages, best;
    const int64_t full = std::min<int64_t>(text.size(), limit) / kPageSize;
    for (int64_t i = 1; i <= full; ++i) {
      const auto node = tree_.find(Prefix(text, i));
      if (node == tree_.end()) break;
      pages.push_back(node->second);
      if (std::count(pages.begin() + Unseen(i * kPageSize), pages.end(), kHollow) == 0) {
        best = pages;
      }
    }
    std::fill_n(best.begin(), Unseen(std::ssize(best) * kPageSize), 0);
    return best;
  }

  // A page for text to be written to; evicts when it must.
  std::optional<int32_t> NewPage() {
    if (pool_.free_pages() == 0) EvictSome(1);
    const auto page = pool_.Allocate(1);
    if (!page) return std::nullopt;
    EXPECT_EQ(Users().count(page->front()), 0u) << "a used page was handed out";
    for (const auto& node : tree_) EXPECT_NE(node.second, page->front());
    return page->front();
  }

  // Writes tokens at the end, as far as pages last, and inserts what is full.
  void Append(size_t index, const Text& tokens) {
    Sequence& sequence = sequences_[index];
    for (int32_t token : tokens) {
      if (sequence.text.size() % kPageSize == 0) {
        const auto page = NewPage();
        if (!page) break;
        sequence.pages.push_back(*page);
      } else if (pool_.users(sequence.pages.back()) > 1) {
        const auto page = NewPage();
        if (!page) break;
        pool_.Free({sequence.pages.back()});
        sequence.pages.back() = *page;
        sequence.kept = cache_.Back(sequence.kept, std::ssize(sequence.pages) - 1);
        ++copied;
      }
      sequence.text.push_back(token);
      const int32_t page = sequence.pages.back();
      EXPECT_FALSE(pool_.cached(page)) << "a cached page is written";
      EXPECT_EQ(pool_.users(page), 1) << "a shared page is written";
      held_[page] = sequence.text;
    }
    Insert(sequence);
    if (window_ > 0) GiveBack(sequence, Unseen(std::ssize(sequence.text)));
  }

  void Insert(Sequence& sequence) {
    std::vector<int32_t> expected = sequence.pages;
    const int64_t full = std::ssize(sequence.text) / kPageSize;
    for (int64_t i = 0; i < full && full > sequence.gone; ++i) {
      const int32_t own = i < sequence.gone ? kHollow : expected[i];
      const auto [node, added] = tree_.emplace(Prefix(sequence.text, i + 1), own);
      if (own == kHollow) continue;
      filled += node->second == kHollow;
      if (node->second == kHollow) node->second = own;
      moved += node->second != own;
      expected[i] = node->second;
    }
    EXPECT_EQ(cache_.Insert(sequence.text, sequence.gone, sequence.pages, sequence.kept),
              expected != sequence.pages)
        << "unless it changed nothing";
    EXPECT_EQ(sequence.pages, expected);
    // As after a swap, of which the cache does not know.
    if (Random(0, 9) == 0) sequence.kept = {};
  }

  void GiveBack(Sequence& sequence, int64_t first) {
    const std::vector<int32_t> pages(sequence.pages.begin() + sequence.gone,
                                     sequence.pages.begin() + first);
    pool_.Free(pages);
    sequence.gone = first;
    NoteIdle(pages);
  }

  void Start() {
    const Text text = RandomText(Random(1, kLongest));
    // Some take no hit, and have their pages moved to the tree's.
    const int64_t limit = Random(0, 2) > 0 ? static_cast<int64_t>(text.size()) - 1 : 0;
    const std::vector<int32_t> expected = Cached(text, limit);
    Sequence sequence;
    const PrefixCache::Hit hit = cache_.Find(text, limit);
    sequence.pages = cache_.Acquire(hit);
    sequence.gone = hit.first;
    sequence.kept = hit;
    EXPECT_EQ(sequence.gone, expected.empty() ? 0 : Unseen(std::ssize(expected) * kPageSize));
    EXPECT_EQ(sequence.pages, expected);
    sequence.text = Prefix(text, expected.size());
    hits += expected.size();
    sequences_.push_back(sequence);
    Append(sequences_.size() - 1, Text(text.begin() + sequence.text.size(), text.end()));
  }

  void Grow() {
    if (sequences_.empty()) return;
    const size_t index = Random(0, sequences_.size() - 1);
    Append(index, RandomText(Random(0, 3)));
    if (sequences_[index].text.size() > kLongest) End(index);
  }

  void Fork() {
    if (sequences_.empty()) return;
    const Sequence copy = sequences_[Random(0, sequences_.size() - 1)];
    pool_.Share(Held(copy));
    sequences_.push_back(copy);
  }

  void End() {
    if (!sequences_.empty()) End(Random(0, sequences_.size() - 1));
  }
  void End(size_t index) {
    const absl::Span<const int32_t> held = Held(sequences_[index]);
    const std::vector<int32_t> pages(held.begin(), held.end());
    pool_.Free(pages);
    sequences_.erase(sequences_.begin() + index);
    NoteIdle(pages);
  }
  // The last of the pages became idle first.
  void NoteIdle(const std::vector<int32_t>& pages) {
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
      if (Users().count(*page) == 0) idle_since_[*page] = ++now_;
    }
  }

  void EvictSome(int64_t count) {
    const std::map<int32_t, int32_t> users = Users();
    int64_t expected = 0;
    for (; expected < count; ++expected) {
      const Text* oldest = nullptr;
      for (const auto& [prefix, page] : tree_) {
        if (page == kHollow || users.count(page)) continue;
        if (window_ == 0 && !IsLeaf(prefix)) continue;
        if (!oldest || idle_since_.at(page) < idle_since_.at(tree_.at(*oldest))) oldest = &prefix;
      }
      if (!oldest) break;
      Text prefix = *oldest;
      hollowed += !IsLeaf(prefix);
      for (tree_[prefix] = kHollow;
           !prefix.empty() && tree_.at(prefix) == kHollow && IsLeaf(prefix);
           prefix.resize(prefix.size() - kPageSize)) {
        tree_.erase(prefix);
      }
    }
    evicted += expected;
    EXPECT_EQ(cache_.Evict(count), expected);
  }

  bool IsLeaf(const Text& prefix) const {
    const auto next = tree_.upper_bound(prefix);  // a child comes right behind its parent
    return next == tree_.end() || next->first.size() <= prefix.size() ||
           !std::equal(prefix.begin(), prefix.end(), next->first.begin());
  }

  // A prompt that waits, and is looked up again and again.
  void Look() {
    const std::map<int32_t, int32_t> users = Users();
    const auto limit = static_cast<int64_t>(waiting_.size()) - 1;
    const std::vector<int32_t> expected = Cached(waiting_, limit);
    const int64_t unseen = expected.empty() ? 0 : Unseen(std::ssize(expected) * kPageSize);
    const auto idle = std::count_if(expected.begin() + unseen, expected.end(),
                                    [&](int32_t page) { return !users.count(page); });
    for (const PrefixCache::Hit& known : {PrefixCache::Hit{}, hit_}) {
      const PrefixCache::Hit hit = cache_.Find(waiting_, limit, known);
      EXPECT_EQ(hit.pages, static_cast<int64_t>(expected.size()));
      EXPECT_EQ(hit.first, unseen);
      EXPECT_EQ(hit.idle, idle);
      if (version_ == cache_.version()) {
        EXPECT_EQ(hit.pages, hit_.pages);
        EXPECT_EQ(hit.idle, hit_.idle);
      }
    }
    hit_ = cache_.Find(waiting_, limit, hit_);
    version_ = cache_.version();
    if (Random(0, 9) > 0) return;
    waiting_ = RandomText(kLongest);
    hit_ = cache_.Find(waiting_, kLongest - 1);
  }

  std::mt19937 random_;
  const int64_t window_;
  PagePool pool_{kPages};
  PrefixCache cache_{&pool_, kPageSize, window_};

  std::vector<Sequence> sequences_;
  std::map<int32_t, Text> held_;           // by page
  std::map<Text, int32_t> tree_;           // the page that ends a prefix
  std::map<int32_t, int64_t> idle_since_;  // by page
  int64_t now_ = 0;

  Text waiting_ = Text(kLongest, 0);
  PrefixCache::Hit hit_;
  std::optional<uint64_t> version_;
};

class PrefixCachePropertyTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(PrefixCachePropertyTest, AgreesWithANaiveModel) {
  int64_t hits = 0, moved = 0, copied = 0, evicted = 0, hollowed = 0, filled = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, GetParam());
    for (int i = 0; i < 1000 && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      simulation.Step();
      simulation.Check();
    }
    simulation.Finish();
    if (::testing::Test::HasFailure()) break;
    hits += simulation.hits;
    moved += simulation.moved;
    copied += simulation.copied;
    evicted += simulation.evicted;
    hollowed += simulation.hollowed;
    filled += simulation.filled;
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(moved, 1000);
  EXPECT_GT(copied, 100);
  EXPECT_GT(evicted, 1000);
  if (GetParam() > 0) {
    EXPECT_GT(hollowed, 100);
    EXPECT_GT(filled, 100);
  } else {
    EXPECT_EQ(hollowed, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, PrefixCachePropertyTest, ::testing::Values(0, 1, 3, 4, 8));

}  // namespace
}  // namespace skein::worker
