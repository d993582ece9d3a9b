// Who makes a call.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "coordinator/http2_guard/peer_name.h"

namespace skein::coordinator {

// The client's address, as "ipv4:127.0.0.1:40000". context.peer() tells only the guard's end of a
// pair of sockets.
inline std::string PeerOf(const grpc::ServerContextBase& context) {
  return AddressIn(context.peer());
}

}  // namespace skein::coordinator
