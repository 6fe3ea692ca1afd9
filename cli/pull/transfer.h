// Fetches one file into a store: in parts at once, going on where an earlier attempt ended, with its hash computed
// behind what has come without a gap.
//
// What is on the disk is partial/KEY.data, as long as the whole file, and partial/KEY.json, which says which bytes of
// it came from the server. A file that changed on the server meanwhile is begun anew. Only a file of the right size and
// hash becomes blobs/sha256-HEX.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/pull/network.h"
#include "cli/store/record.h"
#include "cli/store/store.h"
#include "config/result.h"

namespace troupe::cli {

struct TransferOptions {
  int connections = 4;
  std::uint64_t max_store_bytes = 0;  // 0: any
  // Called often, with the bytes of this file that are there and its size.
  std::function<void(std::uint64_t done, std::uint64_t size)> progress = [](std::uint64_t, std::uint64_t) {};
};

struct WantedFile {
  Url url;
  std::string name;         // of the file in the store, and for messages
  std::string sha256{};     // empty: not known; then the file's own becomes its name
  std::uint64_t bytes = 0;  // 0: not known
};

// Error: as the network and the disk say; protocol where the server contradicts itself or the promised size; io for a
// wrong hash, in which case nothing is kept; interrupted(), in which case what has come is kept, as with all errors
// that may pass. If the store has the file from this address, and the server's mark says that it is the same, nothing
// is fetched. held: the locks of files whose hash is known only now, until they are listed: who waits finds them there.
[[nodiscard]] Result<StoredFile> fetch_file(const Store& store, Network& network, const WantedFile& wanted,
                                            const TransferOptions& options, std::vector<StoreLock>& held);

// The first bytes of a file, at least `least` of them if it has as many: into partial/KEY.data as fetch_file() leaves
// it, so that it goes on from there. The path of that file, which is as long as the whole one.
[[nodiscard]] Result<std::string> fetch_front(const Store& store, Network& network, const WantedFile& wanted,
                                              std::uint64_t least, const TransferOptions& options);

// Takes away what has come of a file, unless another process fetches it.
void forget_partial(const Store& store, const WantedFile& wanted);

// How much of a file has come.
[[nodiscard]] std::uint64_t arrived_bytes(const Store& store, const WantedFile& wanted);

}  // namespace troupe::cli
