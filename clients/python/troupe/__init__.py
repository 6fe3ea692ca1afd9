"""A client of the troupe language model server, for asyncio.

    async with troupe.Client() as client:
        async for tokens in client.stream("Once upon a time", max_tokens=40):
            print(tokens.text, end="", flush=True)

Answers about the server (health(), models(), status(), ...) are the messages of the protocol, troupe.troupe_pb2.
"""
try:
    import google.protobuf as _protobuf  # noqa: F401
except ImportError:
    raise ImportError("troupe needs Python's protobuf module (Debian: apt-get install python3-protobuf, for "
                      "/usr/bin/python3)", name="google.protobuf") from None
try:
    from . import troupe_pb2
except ImportError as error:
    if error.name not in (None, __name__, __name__ + ".troupe_pb2"):
        raise
    raise ImportError("troupe lacks the classes of the protocol, which are made when it is installed or built: "
                      "pip install clients/python, or PYTHONPATH=build/release/clients/python",
                      name=__name__ + ".troupe_pb2") from None

from .client import Client, Embeddings, Period, Pooling
from .errors import Cancelled, ConnectionLost, Failed, ProtocolError, Refused, TroupeError, UntrustedServer
from .options import Message, Options, Prompt, ToolCall
from .retry import RetryPolicy
from .stream import Completion, Stream, Tokens

__all__ = ["Cancelled", "Client", "Completion", "ConnectionLost", "Embeddings", "Failed", "Message", "Options", "Period",
           "Pooling", "Prompt", "ProtocolError", "Refused", "RetryPolicy", "Stream", "Tokens", "ToolCall", "TroupeError",
           "UntrustedServer", "troupe_pb2"]
