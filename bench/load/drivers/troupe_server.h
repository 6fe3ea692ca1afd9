// The troupe server of a load run: how it is found, the properties of its model that a plan needs, and its counters.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/load/drivers/as_user.h"
#include "bench/load/plan.h"
#include "bench/load/record.h"
#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::load {

struct TroupeServer {
  std::string socket{};                       // the path that answered
  std::unique_ptr<client::Client> control{};  // for status queries and requests that are not measured
  client::ModelDescription model{};
  client::ServerStatus status{};  // when it was found
  bool strict_modes = true;       // ConnectOptions::strict_modes of every connection to it
};

// Connects to `socket` (empty: the default paths) and waits until the server is ready. `model`: empty for the only or
// default one. Errors: those of client::Client::connect; model_missing (it does not serve that model, or could not load
// it); busy (it drains).
[[nodiscard]] Result<TroupeServer> reach_troupe(const std::string& socket, bool strict_modes, const std::string& model);

// Opens another connection to the server, as the user if one is given. Errors: those of client::Client::connect;
// permission, if this process cannot act as the user.
[[nodiscard]] Result<std::unique_ptr<client::Client>> connect_as(const TroupeServer& server,
                                                                 const std::optional<User>& user);

// The ids for synthetic prompts, and the context of the model.
[[nodiscard]] Vocabulary vocabulary_of(const client::ModelDescription& model);

// Converts a planned request to a request of the client library.
[[nodiscard]] client::Request to_client_request(const PlannedRequest& request, const std::string& model,
                                                const std::string& cache_scope);

// Asks for one vector of the prompt's ids, or of its text.
[[nodiscard]] client::EmbedRequest to_embed_request(const PlannedRequest& request, const std::string& model);

// A text for the tokenizer: that of the prompt, or of ids one word for each. O(length).
[[nodiscard]] std::string text_of(const PlannedRequest& request);

// Runs every shared prefix of the plan once, so that their blocks are cached. Error: the server's refusal.
[[nodiscard]] Status warm_prefixes(const Plan& plan, client::Client& client, const std::string& model,
                                   const std::string& cache_scope);

// Waits at most 10 s until the server is at rest, and returns how much its counters have risen since `before`. Error:
// the server does not answer.
[[nodiscard]] Result<ServerAccount> account_since(client::Client& client, const client::ServerStatus& before);

}  // namespace troupe::load
