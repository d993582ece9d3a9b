#include "worker/engine/page_tables.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::worker {

using kernels::PageCopy;

PageTables::PageTables(int64_t pages, int64_t swap_pages, int64_t page_size, int64_t window)
    : page_size_(page_size),
      window_(window),
      pool_(pages),
      swap_(swap_pages),
      cache_(&pool_, page_size, window) {}

void PageTables::Acquire(PageTable& table, absl::Span<const int32_t> tokens, int64_t limit,
                         const PrefixCache::Hit& known) {
  const PrefixCache::Hit hit = cache_.Find(tokens, limit, known);
  table.pages = cache_.Acquire(hit);
  table.gone = hit.first;
  table.kept = hit;
}

void PageTables::Fork(const PageTable& from, int64_t tokens, PageTable& to) {
  to.pages.assign(from.pages.begin(), from.pages.begin() + PagesOf(tokens));
  to.gone = from.gone;
  to.kept = cache_.Back(from.kept, tokens / page_size_);
  pool_.Share(to.Held());
}

bool PageTables::CopiesOnWrite(const PageTable& table, int64_t position) const {
  const auto index = static_cast<size_t>(position / page_size_);
  if (index >= table.pages.size()) return false;
  const int32_t page = table.pages[index];
  return pool_.users(page) > 1 || pool_.cached(page);
}

absl::Status PageTables::Allocate(int64_t count, std::vector<int32_t>& pages) {
  if (count > pool_.free_pages()) cache_.Evict(count - pool_.free_pages());
  const std::optional<std::vector<int32_t>> fresh = pool_.Allocate(count);
  if (!fresh.has_value()) {
    return absl::InternalError(absl::StrCat("the scheduler gave away more pages than there are: ",
                                            count, " of ", pool_.free_pages(), " free ones"));
  }
  pages.insert(pages.end(), fresh->begin(), fresh->end());
  return absl::OkStatus();
}

absl::Status PageTables::Extend(PageTable& table, int64_t begin, int64_t end,
                                std::vector<PageCopy>& copies) {
  if (CopiesOnWrite(table, begin)) {
    const int64_t index = begin / page_size_;
    std::vector<int32_t> fresh;
    SKEIN_RETURN_IF_ERROR(Allocate(1, fresh));
    const int32_t shared = std::exchange(table.pages[index], fresh[0]);
    copies.push_back({PageCopy::Kind::kWithin, shared, fresh[0]});
    pool_.Free({shared});
    table.announced = std::min(table.announced, index);
    table.kept = cache_.Back(table.kept, index);
  }
  const int64_t missing = PagesOf(end) - static_cast<int64_t>(table.pages.size());
  return missing > 0 ? Allocate(missing, table.pages) : absl::OkStatus();
}

void PageTables::Truncate(PageTable& table, int64_t tokens) {
  const auto left = static_cast<size_t>(PagesOf(tokens));
  if (left >= table.pages.size()) return;
  pool_.Free(table.Held().subspan(std::max<int64_t>(static_cast<int64_t>(left) - table.gone, 0)));
  table.gone = std::min(table.gone, static_cast<int64_t>(left));
  table.pages.resize(left);
  table.announced = std::min(table.announced, static_cast<int64_t>(left));
  table.kept = cache_.Back(table.kept, static_cast<int64_t>(left));
}

void PageTables::GiveBack(PageTable& table, int64_t position) {
  const int64_t first = cache_.FirstSeen(position);
  if (first <= table.gone) return;
  pool_.Free(table.Held().first(first - table.gone));
  table.gone = first;
}

void PageTables::Keep(PageTable& table, absl::Span<const int32_t> tokens) {
  const int64_t full = std::ssize(tokens) / page_size_;
  if (full <= table.kept.pages) return;  // as after most steps, which fill no page
  if (cache_.Insert(tokens, table.gone, table.pages, table.kept)) table.announced = 0;
}

absl::Status PageTables::SwapOut(PageTable& table, std::vector<PageCopy>& copies) {
  std::optional<std::vector<int32_t>> places = swap_.Allocate(table.held());
  if (!places.has_value()) return absl::InternalError("the scheduler overfilled the swap pool");
  for (size_t i = 0; i < places->size(); ++i) {
    copies.push_back({PageCopy::Kind::kSwapOut, table.Held()[i], (*places)[i]});
  }
  pool_.Free(table.Held());
  table = {.swapped = *std::move(places), .gone = table.gone};
  return absl::OkStatus();
}

absl::Status PageTables::SwapIn(PageTable& table, std::vector<PageCopy>& copies) {
  table.pages.assign(table.gone, 0);
  SKEIN_RETURN_IF_ERROR(Allocate(static_cast<int64_t>(table.swapped.size()), table.pages));
  for (size_t i = 0; i < table.swapped.size(); ++i) {
    copies.push_back({PageCopy::Kind::kSwapIn, table.swapped[i], table.Held()[i]});
  }
  swap_.Free(table.swapped);
  table.swapped.clear();
  return absl::OkStatus();
}

void PageTables::Release(PageTable& table) {
  pool_.Free(table.Held());
  swap_.Free(table.swapped);
  table = {};
}

int64_t PageTables::CountOwn(const PageTable& table) const {
  const auto is_own = [this](int32_t page) { return pool_.users(page) == 1; };
  if (window_ > 0) {
    return pool_.shared_pages() == 0 ? table.held() : absl::c_count_if(table.Held(), is_own);
  }
  if (table.pages.empty() || is_own(table.pages.front())) return table.held();
  // Whoever shares a page of a table shares all pages before that one.
  const auto first =
      std::partition_point(table.pages.begin(), table.pages.end(), std::not_fn(is_own));
  return table.pages.end() - first;
}

kernels::SlotUpdate PageTables::Announce(int32_t slot, PageTable& table) {
  kernels::SlotUpdate update{.slot = slot, .first_page = table.announced};
  update.pages.assign(table.pages.begin() + table.announced, table.pages.end());
  table.announced = static_cast<int64_t>(table.pages.size());
  return update;
}

}  // namespace skein::worker
