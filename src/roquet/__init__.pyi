# The names that the package offers its users.

from roquet import sync as sync
from roquet.client import MQ as MQ
from roquet.client import ConsumerOptions as ConsumerOptions
from roquet.client import Credentials as Credentials
from roquet.client import Message as Message
from roquet.client import MessageQueue as MessageQueue
from roquet.client import OutcomeUnknown as OutcomeUnknown
from roquet.client import Popped as Popped
from roquet.client import ProducerOptions as ProducerOptions
from roquet.client import Received as Received
from roquet.client import Refused as Refused
from roquet.client import RoquetError as RoquetError
from roquet.client import SendReceipt as SendReceipt
from roquet.client import SendStatus as SendStatus
from roquet.client import Sql as Sql
from roquet.client import StoredMessage as StoredMessage
from roquet.client import TlsOptions as TlsOptions
from roquet.client import TransactionState as TransactionState
from roquet.client import Unreachable as Unreachable
from roquet.client import UsageError as UsageError
from roquet.client import connect as connect
