// TCP sockets on every address of this host.
#pragma once

#include "proto/base/descriptor.h"

namespace dtrun {

// Bound to `port` (0: a free one) of all addresses, those of IPv4 alone where there is no IPv6; does not
// listen yet. Not open, and errno, if another process has the port.
Descriptor bound_to_all(int port);

// That a socket is bound to, of either kind of address.
int port_of(int socket);

}  // namespace dtrun
