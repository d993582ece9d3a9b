#include "worker/engine/inbox.h"

#include <utility>

namespace skein::worker {

void Inbox::Submit(GenerationRequest request) {
  absl::MutexLock lock(&mutex_);
  contents_.requests.push_back(std::move(request));
}

void Inbox::Cancel(RequestId id) {
  absl::MutexLock lock(&mutex_);
  contents_.cancelled.push_back(id);
}

void Inbox::CancelAll() {
  absl::MutexLock lock(&mutex_);
  contents_.requests.clear();
  contents_.cancelled.clear();
  contents_.cancel_all = true;
}

void Inbox::Stop() {
  absl::MutexLock lock(&mutex_);
  contents_.stop = true;
}

bool Inbox::HasSomething() const {
  return !contents_.requests.empty() || !contents_.cancelled.empty() || contents_.cancel_all ||
         contents_.stop;
}

Inbox::Contents Inbox::Take(bool wait) {
  absl::MutexLock lock(&mutex_);
  if (wait) mutex_.Await(absl::Condition(this, &Inbox::HasSomething));
  return std::exchange(contents_, Contents{.stop = contents_.stop});
}

}  // namespace skein::worker
