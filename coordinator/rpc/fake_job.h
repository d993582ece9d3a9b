// Plays a job of ranks that attach over real gRPC and answer by a script instead of a model.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/tls/mutual_tls.h"
#include "parallel/attach/protocol.h"
#include "serving/output.h"
#include "serving/request.h"

namespace skein::coordinator {

struct FakeJobOptions {
  std::string coordinator;  // HOST:PORT
  std::optional<MutualTls> tls;
  std::string job_id = "job";
  std::string secret = "a secret of the job";
  std::string layout;  // empty: the coordinator's
  std::string model;   // likewise
  int32_t size = 1;
  std::string version = "test";
  attach::ProtocolRange protocols = attach::kProtocols;
  std::string digest = "digest";  // of every slice
  std::string model_path = "/models/fake";
  bool load = true;                   // sends Ready as soon as the plan comes
  bool acknowledges = true;           // tells in heartbeats how many messages it has taken up
  serving::ReplicaLoad replica_load;  // what leaders report with every output
  // Gives what a leader sends at once for a new request; null: the test sends.
  std::function<std::vector<serving::AnswerOutput>(const serving::Request&)> script;
};

// Makes an answer of byte tokens. One that ends by an end-of-sequence token ends with the fake
// tokenizer's.
serving::AnswerOutput TextOutput(serving::RequestId request_id, const std::string& text,
                                 serving::Finish finish = serving::Finish::kEos);

// Ranks live on "host0", "host1", ... Each beats its heart every 100 ms. Thread-safe.
class FakeJob {
 public:
  explicit FakeJob(FakeJobOptions options);
  ~FakeJob();  // hangs up

  // Waits until the coordinator has sent the rank its plan.
  bool WaitForPlan(int32_t rank);
  // Returns the exit code of the rank's Shutdown; unset when it did not come in time.
  std::optional<int> WaitForShutdown(int32_t rank);
  // Returns how the rank's stream ended; Unknown "still open" when it did not in time.
  absl::Status WaitForEnd(int32_t rank);

  // Returns the next new request, from whichever leader; unset when none came in time.
  std::optional<serving::Request> WaitForRequest();
  bool WaitForCancel(serving::RequestId request_id);
  bool WaitForCancel(const serving::CancelledAnswer& answer);

  // Sends from the leader of the request's replica.
  void Send(const serving::AnswerOutput& output) { SendOutputs({output}); }
  // Sends what one step gave to requests of one replica.
  void SendOutputs(const std::vector<serving::AnswerOutput>& outputs);

  void SendReady(int32_t rank);
  void SendFailure(int32_t rank, const std::string& message);
  void Kill(int32_t rank);     // breaks its stream
  void Silence(int32_t rank);  // no more heartbeats
  // Makes heartbeats tell from now on that the rank's thread has not moved for so long.
  void Freeze(int32_t rank, const std::string& thread, double seconds);

 private:
  class Rank;

  void OnRequest(Rank* rank, const serving::Request& request);
  void OnCancel(serving::RequestId request_id);
  void OnCancel(const serving::CancelledAnswer& answer);

  const FakeJobOptions options_;
  Mutex mutex_;
  std::deque<serving::Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<serving::RequestId, Rank*> leaders_ ABSL_GUARDED_BY(mutex_);  // by request
  std::vector<serving::RequestId> cancelled_ ABSL_GUARDED_BY(mutex_);
  std::vector<serving::CancelledAnswer> cancelled_answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace skein::coordinator
