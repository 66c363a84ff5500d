# %% [markdown]
# # What was ordered, as tables and as a stream
#
# A notebook in the percent format: Jupyter with jupytext and VS Code show its cells, and
# `python examples/order_totals.py` runs them in turn. It reads the topic that `order_service.py`
# fills, `orders`: JSON with `id`, `item` and `count`.
#
# `NAMESRV_ADDR` says where the cluster is (127.0.0.1:9876), `NOTEBOOK_OUT` where tables go.

# %%
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import roquet.sync

names = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
out = Path(os.environ.get("NOTEBOOK_OUT", "."))
try:
    # Spark would report a missing cluster or topic on many lines.
    with roquet.sync.connect(names) as mq:
        mq.admin().topics.route("orders")
except roquet.RoquetError as error:
    sys.exit(f"order_totals: {error}; is a cluster running? try: roquet dev")
spark = SparkSession.builder.appName("order totals").getOrCreate()
where = {"nameServers": names, "subscribe": "orders"}

# %% [markdown]
# ## The topic as a table
# Each row is a message. A body that is no order becomes nulls, which are counted and left out.

# %%
FIELDS = "id string, item string, count int"
messages = spark.read.format("roquet").options(**where).load()
orders = messages.select("uniqKey", "storeTimestamp", "body").withColumn(
    "order", f.from_json(f.col("body").cast("string"), FIELDS)
)
unreadable = orders.where("order.id is null").count()
print(f"{unreadable} messages are no orders")

# %% [markdown]
# ## Totals by item
# A producer that repeats a send makes a second message with the same order id: it counts once.

# %%
once = orders.where("order.id is not null").select("order.*").dropDuplicates(["id"])
totals = once.groupBy("item").agg(f.count("*").alias("orders"), f.sum("count").alias("pieces"))
totals.orderBy(f.desc("pieces")).show()

# %% [markdown]
# ## The same as a stream
# `availableNow` reads what is there and ends; the checkpoint has the offsets, so the next run reads
# only what came since. Without the trigger it goes on for ever.

# %%
stream = spark.readStream.format("roquet").options(**where, startingOffsets="earliest").load()
parsed = stream.select(
    "storeTimestamp", f.from_json(f.col("body").cast("string"), FIELDS).alias("order")
)
query = (
    parsed.where("order.id is not null")
    .select("storeTimestamp", "order.*")
    .writeStream.format("parquet")
    .option("path", str(out / "orders"))
    .option("checkpointLocation", str(out / "orders-checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.read.parquet(str(out / "orders")).groupBy("item").agg(f.sum("count")).show()
