#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/assert.h"
#include "config/options/model_keys.h"
#include "config/options/options.h"

namespace troupe::config {
namespace {

std::vector<CommandInfo> make_commands() {
  static const std::string kModelText = fmt::format(
      "ls shows the models of the server: the default one first, whether each is served, its size and its requests. "
      "load adds one, for the server's owner and root: it returns once the model is served, and the others are served "
      "meanwhile. Its keys are those of a [[model]] table: {}; of several aliases aliases=a,b. Where memory is "
      "missing, "
      "idle models make room that are neither the default nor pinned, the least recently used first. replace=beside "
      "puts it in the place of the model that has its name: it is loaded beside that one, which serves until then and "
      "ends what it has begun; replace=unload-first gives that one's memory back first, and requests wait for the "
      "load. load=on-request: it is loaded once a request asks for it, and put out for others, or after keep-alive. "
      "unload takes one away: requests that run have --drain-timeout of the server to end. info shows one with its "
      "family, types, context, vocabulary and defaults. check (of all models, or of those that are named), for the "
      "server's owner and root, computes fixed tokens with each model, whose bits must be those of its load, compares "
      "all "
      "weights in memory with their checksums, and says whether the file on disk is still the one that was loaded; a "
      "damaged model is taken out, and the exit code is 1. What is loaded like this is not in the configuration file: "
      "it "
      "is gone after a restart.",
      fmt::join(model_keys(), ", "));
  return {
      {Command::serve,
       "serve",
       "serve a model to the users of this machine",
       "[MODEL...]",
       "Loads a model and serves it through a Unix socket until SIGTERM or SIGINT, which let running answers finish "
       "(a second signal stops at once). The arguments are files or names of models, as values of -m. Without one the "
       "embedded "
       "model is served. Users share the server equally; "
       "[[tenant]] tables in troupe.toml give users, groups and services weights and limits (operations.md).",
       {"troupe serve", "troupe serve llama-3.2-1b-q4_k_m.gguf -c 8k -t 8",
        "troupe serve --socket /run/user/1000/my.sock --memory 8GiB --allow-gid 100",
        "troupe serve --log-format json --log-level warn --print-config", "troupe serve --check",
        "troupe serve --profile"}},
      {Command::run,
       "run",
       "stream an answer from the server",
       "[PROMPT...]",
       "Sends a prompt to the server and writes the answer to stdout as it comes. The prompt is the arguments joined "
       "by spaces, else the file of -f, else stdin. What is piped in beside arguments goes before them, with a line "
       "end between; a loop that reads its own lines from stdin keeps them with `troupe run ... </dev/null`, and so "
       "does a job whose stdin stays open without a byte (ssh, CI), which is an error after --stdin-timeout. Ctrl-C "
       "cancels the request. With --tools the model may call functions: behind the text each call is a line of JSON, "
       "with id, name and arguments, and troupe runs none (tools.md).",
       {"troupe run Once upon a time", "troupe run -n 64 --temp 0 \"Once upon a time\"",
        "troupe run --seed 7 --stop \"The end\" -v -f prompt.txt",
        "troupe run \"In short, the letter says\" < letter.txt", "troupe run --choices 3 Once upon a time",
        "troupe run --ids --json 1 424 437 261 399",
        "troupe run --tools tools.json --tool-choice required \"What is the weather in Bern?\"",
        "troupe run -jf person.schema.json -n 200 \"A person in JSON: \"",
        "troupe run --choice yes --choice no \"Is a whale a fish? \"",
        "troupe run --grammar-file dates.gbnf \"Three dates: \""}},
      {Command::verify,
       "verify",
       "prove that answers are what a model gives",
       "FILE...",
       "Reads receipts that `troupe run --receipt` wrote, computes each answer again and says that every token, the "
       "text "
       "and the end are what this model gives for this prompt, these parameters and this seed, or the first place that "
       "differs and what belongs there. With -m the model is loaded here; else a server computes, at the speed at "
       "which "
       "it reads prompts. The exit code is 0 if all are proved, 1 if one differs and never else. A receipt of another "
       "model, or one computed under other numerics, is refused (exit code 2); --anyway compares the latter all the "
       "same. Where nothing could be asked, it is 75: no server, one that has no room, or that breaks off; 77: one "
       "that "
       "does not let you in; 65, 66: the file of -m. "
       "verification.md says what a proof proves.",
       {"troupe verify answer.json", "troupe verify -m llama-3.2-1b-q4_k_m.gguf answers/*.json",
        "troupe verify --socket /run/troupe/troupe.sock answer.json",
        "troupe verify -m llama.gguf --kernels avx2 --kv-type f16 answer.json"}},
      {Command::chat,
       "chat",
       "talk with the server's model",
       "",
       "Reads what you say line by line, and streams the answers. A line that ends with \\ goes on in the next; \"\"\" "
       "begins and ends a text of several lines. Ctrl-C stops an answer, Ctrl-D or /quit ends the chat; /help lists "
       "the "
       "other commands. With --session the conversation is kept under this name, by the server and in a file of your "
       "own. A model without a chat "
       "template continues the text instead. With --tools the model may call functions: each call is shown, and you "
       "are asked for its result, which the model goes on with; troupe runs none.",
       {"troupe chat", "troupe chat --system \"You are terse.\" --temp 0.3", "troupe chat --session tea",
        "troupe chat --tools tools.json"}},
      {Command::embed,
       "embed",
       "get vectors of texts from the server",
       "[TEXT...]",
       "Asks the server for one vector for each text and writes each as a line of JSON, in their order: of an encoder "
       "what it is made for, of a model that continues texts its hidden states, pooled. The texts are the arguments, "
       "else the lines of the file of -f, else those of stdin. The lines of what is piped in beside arguments go "
       "before them (</dev/null: without it).",
       {"troupe embed \"a cat\" \"a dog\"", "troupe embed -f lines.txt --pooling mean > vectors.jsonl",
        "troupe embed --ids \"101 7592 102\""}},
      {Command::session,
       "session",
       "list and manage the conversations that the server keeps",
       "list | save NAME | fork NAME NEW | delete NAME | inspect NAME | repair",
       "Conversations begin with `troupe run --session NAME`, which continues them, too. list shows yours: tokens, how "
       "many of them are saved with K and V, bytes on disk, last use. save waits until the last answer is on disk with "
       "K and V. fork makes a second one from the same tokens. delete forgets one. inspect shows one with its origin "
       "and how far the server's cache still has it; --anchors adds every point where it could be continued. repair is "
       "for the server's user while no server runs: it says what is wrong in --sessions-dir, moves what cannot be used "
       "to DIR/damaged and keeps the rest; with --dry-run it changes nothing. Its exit code is 1 if something is wrong "
       "afterwards, with --dry-run if something is wrong at all.",
       {"troupe session list", "troupe session fork draft second-try", "troupe session delete draft",
        "troupe session inspect draft --anchors --json",
        "troupe session repair --dry-run --sessions-dir /var/lib/troupe/sessions"}},
      {Command::model,
       "model",
       "list, load, replace and unload the models of a server",
       "ls | load [NAME=]FILE [KEY=VALUE...] | unload NAME | info [NAME] | check",
       kModelText,
       {"troupe model ls", "troupe model load llama3=/srv/models/llama-3.2-3b-q4_k_m.gguf ctx-size=16384 kv-type=int8",
        "troupe model load qwen.gguf memory=6GiB pinned=true",
        "troupe model load llama3=/srv/models/llama-3.2-3b-q8_0.gguf replace=beside", "troupe model unload llama3",
        "troupe model info llama3 --json", "troupe model check"}},
      {Command::bench,
       "bench",
       "measure the speed of the engine, without a server",
       "",
       "Measures prefill (tokens per second of a prompt) and decoding (tokens per second for each number of sequences "
       "at once) through the engine's executor, with fixed seeds, after a round that warms up. The median of the "
       "rounds and their spread are printed. Of an encoder, texts of each length of -p are read, as many at once as -b "
       "says. With --profile it also says where the time went: operations, joins, "
       "layers, and the memory at most. With --overhead it starts a server's actors instead, without a socket, and "
       "measures what lies between the last kernel of a step and the first of the next.",
       {"troupe bench", "troupe bench -m tinyllama-1.1b-q8_0.gguf -p 512 -n 64 -b 1,8,32 -t 2",
        "troupe bench -p 128 -n 32 -pg 128,32 -b 1 -d 0,512 -r 3 -o json",
        "troupe bench --profile -p 512 -n 64 -b 1,32 -t 2", "troupe bench --overhead -b 1,8,32 -n 256 -t 1"}},
      {Command::eval,
       "eval",
       "compute the logits of given tokens, or compare two runs",
       "",
       "Computes the logits of every position of a list of token ids, or of a text, and writes them as raw float32. "
       "With --compare or another --compare-... it computes them a second time, with another model, KV cache or "
       "kernels, and says how far the two lie apart; a text longer than -c is then cut into passages of -c tokens.",
       {"troupe eval --tokens ids.json -o logits.f32", "troupe eval -m llama.gguf --tokens ids.json --greedy 24",
        "troupe eval --tokens ids.json -o logits.f32 --kv-type f32 --kernels reference --chunk 7",
        "troupe eval -m llama-f16.gguf --compare llama-q4_k_m.gguf -f text.txt -c 512",
        "troupe eval -f text.txt --compare-kv-type int8 --json",
        "troupe eval -f text.txt --kernels reference --compare-kernels scalar"}},
      {Command::perplexity,
       "perplexity",
       "measure how well a model predicts a text",
       "",
       "Cuts the text of -f, or of stdin, into passages of -c tokens, lets the model read each from an empty cache, "
       "and scores the tokens behind its middle, as llama-perplexity does: the result is exp of their mean negative "
       "log likelihood, with its standard error. The estimate so far goes to stderr. Without -m the embedded model is "
       "used.",
       {"troupe perplexity -f text.txt", "troupe perplexity -m llama.gguf -f wiki.test.raw -c 512 --chunks 100",
        "troupe perplexity -m llama.gguf -f wiki.test.raw -c 384 --stride 256 -ctk int8",
        "troupe perplexity -f text.txt -c 1024 --by-position -o json"}},
      {Command::tokenize,
       "tokenize",
       "turn text into token ids, or back",
       "[TEXT...]",
       "Uses the vocabulary of a model file directly; no server is needed. The text is the arguments joined by spaces, "
       "else the file of -f, else stdin. What is piped in beside arguments goes before them (</dev/null: without it).",
       {"troupe tokenize Once upon a time", "troupe tokenize --ids -f story.txt",
        "troupe tokenize --decode 1 424 437 261 399", "troupe tokenize -m llama.gguf --no-parse-special \"<s>Hello\""}},
      {Command::tools,
       "tools",
       "show how models call tools, and what an answer calls",
       "parse [FILE] | formats",
       "parse reads the text of an answer, from FILE or stdin, as a server does, and prints one line of JSON for each "
       "part of it: a text, the name of a tool that is called, the arguments, the end of the call. The format is that "
       "of --tool-format, else that of the model's chat template; with --tools arguments are read by the schemas of "
       "these tools. formats lists the formats and the models that write them. tools.md says more.",
       {"troupe tools formats", "troupe tools parse --tool-format hermes answer.txt",
        "troupe tools parse -m qwen3-0.6b.gguf --tools tools.json < answer.txt"}},
      {Command::schema,
       "schema",
       "show which JSON schemas are enforced, and what that costs",
       "check CASES.jsonl",
       "check reads a file with a case in each line: an object with name, schema and tests, a list of objects with "
       "valid "
       "and data. It says which schemas can be enforced and why others are refused, walks every instance token by "
       "token "
       "of the model's vocabulary through the masks, and prints wrong verdicts and what masks and compiling took. The "
       "exit code is 1 if a verdict was wrong. structured.md says more.",
       {"troupe schema check cases.jsonl", "troupe schema check --json -m qwen3-0.6b.gguf cases.jsonl"}},
      {Command::grammar,
       "grammar",
       "show whether a grammar can be enforced, and what it lets through",
       "check FILE [TEXT...]",
       "check reads a grammar of GBNF, as --grammar-file of run and `grammar` of HTTP take it. It says where it is "
       "wrong, "
       "by line and column, else its shortest text, and of each TEXT whether it is one of the grammar's and at which "
       "byte "
       "it is not. The exit code is 1 if one is not. structured.md has the notation.",
       {"troupe grammar check dates.gbnf", "troupe grammar check dates.gbnf \"2024-02-30\" unknown"}},
      {Command::pull,
       "pull",
       "fetch a model by its name",
       "NAME...",
       "Fetches models into the store, from where -m finds them by name: ORG/NAME[:QUANT] of a hub (Hugging Face; "
       "HF_ENDPOINT names another), https://HOST/FILE.gguf, or ollama://NAME[:TAG] of a registry as Ollama's "
       "(OLLAMA_REGISTRY names another). Of a hub's model without QUANT the largest file is taken that fits the memory "
       "of a server on this machine, with K and V of -c tokens (8,192, or fewer if it was trained for fewer), and it "
       "is "
       "said why. Parts of a file are fetched at once; what was interrupted goes on where it was. A model is listed "
       "once "
       "its hash is right and a server would take it. This command alone uses the network: no server does (pull.md).",
       {"troupe pull ggml-org/gemma-3-270m-it-GGUF", "troupe pull unsloth/Qwen3-8B-GGUF:Q4_K_M --connections 8",
        "troupe pull https://example.org/tiny.gguf --name tiny", "troupe pull ollama://llama3.2:1b",
        "troupe pull --system ggml-org/gemma-3-270m-it-GGUF:Q8_0"}},
      {Command::list,
       "list",
       "list the models of the store",
       "",
       "Shows the models that `troupe pull` has fetched, with their sizes, quantizations, families and when that was. "
       "A "
       "file that several models need is counted with each of them.",
       {"troupe list", "troupe list --json", "troupe list --system"}},
      {Command::rm,
       "rm",
       "remove models from the store",
       "NAME...",
       "Takes models out of the store, by their whole names. Files go when no other model needs them. A server that "
       "has "
       "one open keeps it until it ends; the disk's space is free then.",
       {"troupe rm ggml-org/gemma-3-270m-it-GGUF:Q8_0", "troupe rm --system llama3.2:1b"}},
      {Command::prune,
       "prune",
       "remove what no model of the store needs",
       "",
       "Removes what is left of transfers that were not finished, and files that no model needs. Where `troupe pull` "
       "runs, nothing is removed, and the exit code is 75.",
       {"troupe prune --dry-run", "troupe prune"}},
      {Command::inspect,
       "inspect",
       "show what is in a model file",
       "[FILE]",
       "Prints what a model file holds, whether it is served, what a token costs in the KV cache, and the longest "
       "context that fits the memory budget; with --metadata and --tensors also those. --json always has all of it.",
       {"troupe inspect", "troupe inspect -m llama.gguf", "troupe inspect llama.gguf --memory 8GiB -c 32768",
        "troupe inspect llama.gguf --metadata --tensors", "troupe inspect llama.gguf --chat-template > mine.jinja"}},
      {Command::status,
       "status",
       "show what the server is doing",
       "",
       "Asks the server for its counters: requests, tokens, cache and memory. The exit code is 0 if it is ready, "
       "75 while it loads or drains, 1 if it failed or stands still (see --progress-timeout of serve).",
       {"troupe status", "troupe status --json", "troupe status --prometheus", "troupe status --profile",
        "troupe status --socket /run/troupe/troupe.sock"}},
      {Command::top,
       "top",
       "watch the server at work",
       "",
       "Shows requests, queues, cache, speed and memory of the server, and looks again every --interval; a server that "
       "has gone is waited for. Keys: space looks at once, s sorts by phase, age, tokens or user, j and k (or the "
       "arrows) choose a request, c and then y cancel it, q or Ctrl-C ends. Of the requests one sees one's own; the "
       "owner of the server and root see all of them. No prompt and no answer is shown.",
       {"troupe top", "troupe top --interval 200ms", "troupe top --once"}},
      {Command::usage,
       "usage",
       "show what each tenant has used",
       "",
       "Asks the server what was used, also before its last start: requests by how they ended, tokens, CPU time and "
       "memory of the KV cache over time, for each tenant. The owner of the server and root see all tenants, others "
       "their own. With --by group the users of a Unix group are one line: the primary group, or, where each user has "
       "one of its own, the first that --group names. Groups are as the system has them now. Where no server answers, "
       "the file of --usage-db is read.",
       {"troupe usage", "troupe usage --since 7d --by day", "troupe usage --since 2026-11-01 --json",
        "troupe usage --by group --group vision,speech --since 30d",
        "troupe usage --usage-db /var/lib/troupe/usage.db"}},
      {Command::key,
       "key",
       "make, list and revoke the keys of clients that come over TCP",
       "add NAME | list | revoke NAME",
       "add draws a key, prints it once and keeps its hash in --keys-file: nothing can show it again. The key counts "
       "for the tenant that --tenant names, else for a tenant of its own, whose limits --quota gives. list shows "
       "names, "
       "tenants and dates. revoke forgets a key. A running server reads the file again with SIGHUP (systemctl reload "
       "troupe); answers that run then are finished.",
       {"troupe key add ci --expires 30d", "troupe key add web-1 --tenant web",
        "troupe key add guest --quota max-running=2,max-answer-tokens-per-minute=6000", "troupe key list --json",
        "troupe key revoke ci"}},
      {Command::backup,
       "backup",
       "copy what the server keeps, also while it serves",
       "DIR",
       "Copies the usage database, the sessions and, with --keys, the file of keys to the new directory DIR, which "
       "only "
       "its owner can enter (0700). It is there when everything is in it, or not at all. manifest.json in it lists "
       "every file with size and SHA-256. For the user that the server runs as, or root. What is configured "
       "(troupe.toml, certificates) and models are not in it. A server that runs is not disturbed: each session is "
       "copied as it was after an answer.",
       {"troupe backup ~/troupe-backup", "troupe backup --state /var/lib/troupe --keys /srv/backup/troupe-today"}},
      {Command::restore,
       "restore",
       "put back what troupe backup has copied",
       "DIR",
       "Checks every file of the backup DIR against its manifest, then copies all of them beside where they belong, "
       "and "
       "gives them their names when all are there. It refuses a state that a server uses, and one that is not empty: "
       "--replace keeps what was there as NAME.before-restore. The file of keys is put back with --keys only. Root "
       "gives the files to the user that the directory belongs to. --dry-run checks the backup and says what would be "
       "done. The exit code is 1 if the backup is damaged, 75 if a server uses the state.",
       {"troupe restore --dry-run ~/troupe-backup",
        "troupe restore --state /var/lib/troupe --keys /srv/backup/troupe-today",
        "troupe restore --state /var/lib/troupe --replace /srv/backup/troupe-today"}},
      {Command::load,
       "load",
       "put the server under load, and measure",
       "[KEY:MS...]",
       "Sends requests to the server in a closed loop (a number of clients) or an open one (a rate), and reports "
       "latencies from the intended send times, throughput, refusals and cache hits. It can disturb the server on "
       "purpose and verify every answer against the same request run alone. Everything random comes from --seed. "
       "With --tenant it plays several users at once, each with a load of its own, and reports how they share the "
       "server. Arguments are further limits of --goodput. Ctrl-C ends the run early and reports. So does a server "
       "that has gone (exit code "
       "75) or refuses this client (77).",
       {"troupe load --clients 8 --num-prompts 64", "troupe load --rate 5 --duration 60s --goodput ttft:500 tpot:50",
        "troupe load --clients 64 --num-prompts 256 --prefix-len 200 --num-prefixes 8 --verify",
        "troupe load --rate 10 --burstiness 0.5 --prompt-len lognormal:200,100 -o run.json --html run.html",
        "troupe load --fault-cancel 0.1 --fault-disconnect 0.1 --fault-garbage 0.1 --verify --seed 7",
        "troupe load --duration 60s --tenant A:clients=64 --tenant B:clients=1,weight=3 --compare-alone B",
        "troupe load --tenant A:uid=1001,clients=64 --tenant B:uid=1002,rate=1,prompt-len=normal:64,16"}},
      {Command::probe,
       "probe",
       "measure what this machine can do",
       "",
       "Measures the clock, whether CPUs are cores or siblings, the peaks of the arithmetic units, the speed of "
       "reading memory and what waking a thread costs. The result is kept for this machine ($XDG_CACHE_HOME/troupe, "
       "else ~/.cache/troupe) and shown when asked again; `troupe bench` prints its results as shares of it. It wants "
       "the machine for itself, for about ten seconds, and the memory of a buffer of 2 GiB or four times the L3 cache.",
       {"troupe probe", "troupe probe --refresh -t 2 -o json", "troupe probe --quick -m llama-3.2-1b-q4_k_m.gguf"}},
      {Command::doctor,
       "doctor",
       "what this machine and installation lack, each with its remedy",
       "",
       "Looks at the CPU's features and how its frequency is chosen, memory, huge pages, limits of control groups, the "
       "probe of this machine, and the configuration that a server started now would have: what it would refuse, "
       "whether its models fit, where it would keep sessions; then at systemd's units and at the sockets of servers: "
       "whether they let you in, and whether an old program still runs. It changes nothing, measures nothing, and "
       "starts no server. -m judges another model. A line begins with ok, advice or broken. The exit code is 0 if all "
       "is fine, 1 if there is advice, 2 if something is broken.",
       {"troupe doctor", "troupe doctor -m llama-3.2-1b-q4_k_m.gguf -c 32k", "troupe doctor --json"}},
      {Command::version,
       "version",
       "show the version and what this CPU can run",
       "",
       "Prints the version, the compiler and the kernel variants that this CPU can run.",
       {"troupe version", "troupe version --json"}},
      {Command::completion,
       "completion",
       "print a script that completes commands in your shell",
       "bash | zsh | fish",
       "The script completes subcommands, flags, the values of flags where there are a few, names of files, and names "
       "of "
       "the server's models. Installed, bash (with the package bash-completion), zsh and fish find it by themselves; "
       "else `source <(troupe completion bash)` belongs into ~/.bashrc, `source <(troupe completion zsh)` behind "
       "compinit into ~/.zshrc, and the script for fish into ~/.config/fish/completions/troupe.fish.",
       {"troupe completion bash", "troupe completion zsh", "troupe completion fish"}},
  };
}

}  // namespace

std::span<const CommandInfo> commands() {
  static const std::vector<CommandInfo> list = make_commands();
  return list;
}

const CommandInfo* find_command(std::string_view name) {
  const auto found = std::find_if(commands().begin(), commands().end(), [&](const auto& c) { return c.name == name; });
  return found == commands().end() ? nullptr : &*found;
}

const CommandInfo& info(Command command) {
  const auto found =
      std::find_if(commands().begin(), commands().end(), [&](const auto& c) { return c.command == command; });
  TROUPE_ASSERT(found != commands().end());
  return *found;
}

}  // namespace troupe::config
