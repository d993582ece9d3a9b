// Sequences as tests show them to the scheduler.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {

inline constexpr int64_t kPage = 16;

inline absl::Time At(int64_t seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// Arrives at second `id`; alone on its pages.
inline SequenceView Running(int64_t id, int64_t length, int64_t computed) {
  SequenceView view;
  view.id = SequenceId(id);
  view.arrival = At(id);
  view.length = length;
  view.computed = computed;
  view.pages = view.own_pages = (computed + kPage - 1) / kPage;
  return view;
}
inline SequenceView Decode(int64_t id, int64_t length) { return Running(id, length, length - 1); }
inline SequenceView Prompt(int64_t id, int64_t length) { return Running(id, length, 0); }

inline SequenceView Hit(SequenceView view, int64_t pages, int64_t idle) {
  view.computed = pages * kPage;
  view.pages = pages;
  view.idle_pages = idle;
  return view;
}
inline SequenceView Swapped(SequenceView view) {
  view.own_pages = 0;
  view.swapped = true;
  return view;
}
inline SequenceView Pending(SequenceView view) {
  view.pending = true;
  return view;
}
inline SequenceView Copies(SequenceView view) {
  view.copies = true;
  return view;
}
inline SequenceView Own(SequenceView view, int64_t pages) {
  view.own_pages = pages;
  return view;
}
inline SequenceView Slots(SequenceView view, int32_t slots) {
  view.slots = slots;
  return view;
}
inline SequenceView Due(SequenceView view, int64_t seconds) {
  view.deadline = At(seconds);
  return view;
}
inline SequenceView Ranks(SequenceView view, int32_t priority) {
  view.priority = priority;
  return view;
}

inline Chunk Part(int64_t id, int64_t begin, int64_t count, bool draws) {
  return {SequenceId(id), begin, count, draws};
}

}  // namespace skein::worker
