"""The classes of the schema under the name that protoc gives them: the same module as troupe.troupe_pb2."""
import sys

from troupe import troupe_pb2
from troupe.troupe_pb2 import *  # noqa: F403  (for tools that read this file)

sys.modules[__name__] = troupe_pb2
