#include "worker/engine/page_tables.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::worker {

using kernels::PageCopy;

PageTables::PageTables(int64_t pages, int64_t swap_pages, int64_t page_size)
    : page_size_(page_size), pool_(pages), swap_(swap_pages), cache_(&pool_, page_size) {}

void PageTables::Acquire(PageTable& table, absl::Span<const int32_t> tokens, int64_t limit,
                         const PrefixCache::Hit& known) {
  table.pages = cache_.Acquire(tokens, limit, known);
}

void PageTables::Fork(const PageTable& from, int64_t tokens, PageTable& to) {
  to.pages.assign(from.pages.begin(), from.pages.begin() + PagesOf(tokens));
  pool_.Share(to.pages);
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
    table.kept = std::min(table.kept, index);
  }
  const int64_t missing = PagesOf(end) - static_cast<int64_t>(table.pages.size());
  return missing > 0 ? Allocate(missing, table.pages) : absl::OkStatus();
}

void PageTables::Truncate(PageTable& table, int64_t tokens) {
  const auto left = static_cast<size_t>(PagesOf(tokens));
  if (left >= table.pages.size()) return;
  pool_.Free(absl::MakeConstSpan(table.pages).subspan(left));
  table.pages.resize(left);
  table.announced = std::min(table.announced, static_cast<int64_t>(left));
  table.kept = std::min(table.kept, static_cast<int64_t>(left));
}

void PageTables::Keep(PageTable& table, absl::Span<const int32_t> tokens) {
  const int64_t full = std::ssize(tokens) / page_size_;
  if (full <= table.kept) return;  // as after most steps, which fill no page
  if (cache_.Insert(tokens, table.pages)) table.announced = 0;
  table.kept = full;
}

absl::Status PageTables::SwapOut(PageTable& table, std::vector<PageCopy>& copies) {
  std::optional<std::vector<int32_t>> places =
      swap_.Allocate(static_cast<int64_t>(table.pages.size()));
  if (!places.has_value()) return absl::InternalError("the scheduler overfilled the swap pool");
  for (size_t i = 0; i < places->size(); ++i) {
    copies.push_back({PageCopy::Kind::kSwapOut, table.pages[i], (*places)[i]});
  }
  pool_.Free(table.pages);
  table = {.swapped = *std::move(places)};
  return absl::OkStatus();
}

absl::Status PageTables::SwapIn(PageTable& table, std::vector<PageCopy>& copies) {
  SKEIN_RETURN_IF_ERROR(Allocate(static_cast<int64_t>(table.swapped.size()), table.pages));
  for (size_t i = 0; i < table.swapped.size(); ++i) {
    copies.push_back({PageCopy::Kind::kSwapIn, table.swapped[i], table.pages[i]});
  }
  swap_.Free(table.swapped);
  table.swapped.clear();
  return absl::OkStatus();
}

void PageTables::Release(PageTable& table) {
  pool_.Free(table.pages);
  swap_.Free(table.swapped);
  table = {};
}

int64_t PageTables::CountOwn(const PageTable& table) const {
  if (table.pages.empty() || pool_.users(table.pages.front()) == 1) return table.pages.size();
  // Whoever shares a page of a table shares all pages before that one.
  const auto first = std::partition_point(table.pages.begin(), table.pages.end(),
                                          [this](int32_t page) { return pool_.users(page) > 1; });
  return table.pages.end() - first;
}

kernels::SlotUpdate PageTables::Announce(int32_t slot, PageTable& table) {
  kernels::SlotUpdate update{.slot = slot, .first_page = table.announced};
  update.pages.assign(table.pages.begin() + table.announced, table.pages.end());
  table.announced = static_cast<int64_t>(table.pages.size());
  return update;
}

}  // namespace skein::worker
