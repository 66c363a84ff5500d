# %% [markdown]
# # How far are consumer groups behind, over time?
#
# The job `lag` appends snapshots of committed offsets to a table. This notebook takes some and
# plots them; run the job from cron (`roquet pipeline run lag --samples 1`) and the same cells show
# months.
#
# `NAMESRV_ADDR` says where the cluster is, `NOTEBOOK_OUT` where tables and plot go.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from roquet.spark.jobs import lag

spark = SparkSession.builder.getOrCreate()
names = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
out = Path(os.environ.get("NOTEBOOK_OUT", "."))

# %% [markdown]
# Three snapshots, a second apart. The report says in lines what is wrong; its exit code is 1 if
# anything is.

# %%
options = {"nameServers": names, "out": str(out / "lag"), "samples": "3", "interval": "1"}
report = lag.run(spark, options, print)
print("\n".join(report.lines))

# %% [markdown]
# ## Messages left
# The table `history` has a row for each group, topic and snapshot.

# %%
history = spark.read.parquet(str(out / "lag/history"))
left = history.groupBy("at").pivot("group").agg(f.sum("messagesLeft")).orderBy("at").toPandas()
left

# %%
figure, (over_time, by_queue) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for group in left.columns[1:]:
    over_time.plot(left["at"], left[group], marker="o", markersize=3, label=group)
over_time.set_ylabel("messages left")
over_time.set_ylim(bottom=0)
over_time.legend(frameon=False)
over_time.tick_params("x", rotation=45)

# %% [markdown]
# ## Which queues hold a group up
# One queue that stands still is a member that hangs; all of them alike: the group is too slow.

# %%
queues = spark.read.parquet(str(out / "lag/queues")).orderBy(f.desc("messagesLeft")).limit(12)
queues = queues.selectExpr("concat_ws(' ', `group`, topic, queueId) as queue", "messagesLeft")
late = queues.toPandas()
by_queue.barh(late["queue"], late["messagesLeft"])
by_queue.invert_yaxis()
by_queue.set_xlabel("messages left")
figure.savefig(out / "group_lag.png", dpi=120)
figure
