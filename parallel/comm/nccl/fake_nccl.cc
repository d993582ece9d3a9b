// A libnccl.so.2 that moves no data, for tests. Defines say what is wrong with it.
#include "parallel/comm/nccl/fake_nccl.h"

#include <nccl.h>
#include <unistd.h>

#include <cstring>

#ifndef SKEIN_FAKE_VERSION
#define SKEIN_FAKE_VERSION NCCL_VERSION_CODE
#endif

extern "C" {

__attribute__((visibility("default"))) skein::comm::FakeNccl fake_nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = SKEIN_FAKE_VERSION;
  return ncclSuccess;
}

#ifndef SKEIN_FAKE_LACKS
const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited" : "some error";
}
const char* ncclGetLastError(ncclComm_t) { return "the last error"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof(id->internal));
  return static_cast<ncclResult_t>(fake_nccl.id_code.load());
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  ++fake_nccl.inits;
  fake_nccl.blocking_inits += config->blocking == 1 ? 1 : 0;
  fake_nccl.most_blocks = config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs;
  const int code = fake_nccl.init_code;
  if (rank == fake_nccl.refused_rank) return static_cast<ncclResult_t>(code);
  while (fake_nccl.init_waits) usleep(1000);
  for (const char byte : id.internal) {
    if (byte != 7) return ncclInvalidArgument;
  }
  *comm = reinterpret_cast<ncclComm_t>(&fake_nccl);
  return fake_nccl.refused_rank < 0 ? static_cast<ncclResult_t>(code) : ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* code) {
  *code = static_cast<ncclResult_t>(fake_nccl.async_code.load());
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  ++fake_nccl.finalizes;
  while (fake_nccl.end_waits) usleep(1000);
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
  ++fake_nccl.destroys;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  usleep(50'000);  // until the device's kernels have ended
  ++fake_nccl.aborts;
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void*, void*, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t, cudaStream_t) {
  ++fake_nccl.sums;
  fake_nccl.bf16_sums += type == ncclBfloat16 ? 1 : 0;
  fake_nccl.f16_sums += type == ncclFloat16 ? 1 : 0;
  fake_nccl.elements = static_cast<int>(count);
  return op == ncclSum ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int peer, ncclComm_t,
                      cudaStream_t) {
  fake_nccl.sent_bytes = static_cast<int>(count);
  fake_nccl.sent_to = peer;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
  fake_nccl.received_from = peer;
  return ncclSuccess;
}
#endif

}  // extern "C"
