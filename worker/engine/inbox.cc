#include "worker/engine/inbox.h"

#include <utility>

namespace skein::worker {

void Inbox::Submit(GenerationRequest request) {
  MutexLock lock(&mutex_);
  contents_.requests.push_back(std::move(request));
  changed_.NotifyOne();
}

void Inbox::Cancel(RequestId id, std::optional<int32_t> sample) {
  MutexLock lock(&mutex_);
  contents_.cancelled.push_back({id, sample});
  changed_.NotifyOne();
}

uint64_t Inbox::NewEpoch() {
  MutexLock lock(&mutex_);
  contents_.requests.clear();
  contents_.cancelled.clear();
  contents_.cancel_all = true;
  changed_.NotifyOne();
  return ++contents_.epoch;
}

void Inbox::Deliver(StepResult result) {
  MutexLock lock(&mutex_);
  contents_.results.push_back(std::move(result));
  changed_.NotifyOne();
}

void Inbox::Stop() {
  MutexLock lock(&mutex_);
  contents_.stop = true;
  changed_.NotifyOne();
}

bool Inbox::HasSomething() const {
  return !contents_.requests.empty() || !contents_.cancelled.empty() ||
         !contents_.results.empty() || contents_.cancel_all;
}

Inbox::Contents Inbox::Take(std::chrono::steady_clock::time_point deadline, bool stopping) {
  MutexLock lock(&mutex_);
  while (!HasSomething() && (stopping || !contents_.stop)) {
    if (deadline == deadline.max()) {
      changed_.Wait(&mutex_);  // waiting until the end of time overflows
    } else if (!changed_.WaitUntil(&mutex_, deadline)) {
      break;
    }
  }
  return std::exchange(contents_, Contents{.epoch = contents_.epoch, .stop = contents_.stop});
}

}  // namespace skein::worker
