// A file of receipts: an error that names what is wrong, or receipts that read the same once they are written again.
#include "ipc/http/json/receipt.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const auto proofs = ipc::api::read_receipts({reinterpret_cast<const char*>(data), size});
  if (!proofs) {
    fuzz::check_message(proofs.error().message);
    return 0;
  }
  const std::string text = ipc::api::receipt_file(*proofs);
  const auto again = ipc::api::read_receipts(text);
  TROUPE_ASSERT(again && ipc::api::receipt_file(*again) == text);
  return 0;
}
