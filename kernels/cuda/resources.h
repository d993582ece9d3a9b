// Owners of what CUDA gives: memory, streams, events. Each belongs to the device that was current
// when it was made. Movable; destroying one of work under way waits for it where CUDA does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// Of the device, 256-byte aligned, zero-filled.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory();

  // ResourceExhausted, with `what`, the bytes asked for and those that are free.
  static absl::StatusOr<DeviceMemory> Allocate(int64_t bytes, const char* what);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Of the host, which stays where it is, so that the device reads and writes it by the same address.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory();

  // ResourceExhausted, with `what` and the bytes asked for. Costs about 0.3 s a GiB.
  static absl::StatusOr<PinnedMemory> Allocate(int64_t bytes, const char* what);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Not ordered with any other stream.
class OwnedStream {
 public:
  OwnedStream() = default;
  OwnedStream(OwnedStream&& other) noexcept { *this = std::move(other); }
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnedStream();

  static absl::StatusOr<OwnedStream> Create();

  Stream get() const { return stream_; }
  // Waits for all of it. Errors are those of its kernels.
  absl::Status Synchronize() const;

 private:
  Stream stream_;
};

// A point of a stream.
class OwnedEvent {
 public:
  OwnedEvent() = default;
  OwnedEvent(OwnedEvent&& other) noexcept { *this = std::move(other); }
  OwnedEvent& operator=(OwnedEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~OwnedEvent();

  // `timed`: tells when, which costs a little.
  static absl::StatusOr<OwnedEvent> Create(bool timed = false);

  // It is what `stream` was given so far.
  absl::Status Record(Stream stream);
  // Whether that is done; an event that was never recorded is. Errors are those of kernels.
  absl::StatusOr<bool> Done() const;
  absl::Status Synchronize() const;
  // Looks at it until it is done, or the deadline has passed: false. `between` is called between
  // looks, and its error ends the wait.
  absl::StatusOr<bool> Await(absl::Time deadline, absl::FunctionRef<absl::Status()> between) const;
  // Of two that are timed and done.
  absl::StatusOr<float> MillisecondsSince(const OwnedEvent& begin) const;
  // What `stream` is given from now on waits for it.
  absl::Status Delay(Stream stream) const;

 private:
  void* event_ = nullptr;  // a cudaEvent_t
};

// What a stream was given while it was captured, to be launched again and again at once.
class OwnedGraph {
 public:
  OwnedGraph() = default;
  OwnedGraph(OwnedGraph&& other) noexcept { *this = std::move(other); }
  OwnedGraph& operator=(OwnedGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~OwnedGraph();

  // `enqueue` gives the stream its work; nothing of it runs.
  static absl::StatusOr<OwnedGraph> Capture(Stream stream,
                                            absl::FunctionRef<absl::Status()> enqueue);
  absl::Status Launch(Stream stream) const;

 private:
  void* graph_ = nullptr;  // a cudaGraphExec_t
};

}  // namespace skein::kernels::cuda
