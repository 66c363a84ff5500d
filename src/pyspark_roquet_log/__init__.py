"""Where Spark finds the format `roquet-log`: no session has to register it.

Spark imports each package of the Python path whose name begins with `pyspark_` and knows its
`DefaultSource` from then on, in SQL, `spark-sql`, the Thrift server and Spark Connect as well.
"""

from roquet.spark.log_source import RoquetLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
