// The address of a client, which gRPC cannot see itself: the guard's end of the pair of sockets
// that it gets is bound to a name that tells it.
#pragma once

#include <string>
#include <string_view>

namespace skein::coordinator {

// Of the other end of a connection, in gRPC's form: "ipv4:127.0.0.1:40000", "ipv6:[::1]:40000"; ""
// where the system does not tell.
std::string AddressOfPeer(int fd);

// Binds a socket to a name that nobody else has and that ends with `address`. It is not found by
// others: nobody listens there.
void NameSocket(int fd, const std::string& address);

// What a peer's name that gRPC tells says of the client: "ipv4:127.0.0.1:40000",
// "ipv6:%5B::1%5D:40000", as gRPC would say it without a guard. Another name stays as it is.
std::string AddressIn(const std::string& peer);

}  // namespace skein::coordinator
