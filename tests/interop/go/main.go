// The Go side of the interoperation tests: one operation a run.
// Standard input is a JSON request, standard output its JSON answer.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type given struct {
	Body       []byte            `json:"body"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Properties map[string]string `json:"properties"`
}

type request struct {
	Do       string  `json:"do"`
	Namesrv  string  `json:"namesrv"`
	Topic    string  `json:"topic"`
	Group    string  `json:"group"`
	Tags     string  `json:"tags"`
	Queues   int     `json:"queues"`
	Broker   string  `json:"broker"`
	Count    int     `json:"count"`
	Seconds  int     `json:"seconds"`
	Messages []given `json:"messages"`
}

type seen struct {
	Status      string            `json:"status,omitempty"`
	MsgID       string            `json:"msg_id"`
	OffsetMsgID string            `json:"offset_msg_id"`
	Broker      string            `json:"broker"`
	Queue       int               `json:"queue"`
	Offset      int64             `json:"offset"`
	Body        []byte            `json:"body,omitempty"`
	Tags        string            `json:"tags,omitempty"`
	Keys        string            `json:"keys,omitempty"`
	Properties  map[string]string `json:"properties,omitempty"`
}

func main() {
	rlog.SetLogLevel("error")
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	operations := map[string]func(request) ([]seen, error){
		"send": send, "consume": consume, "pull": pull,
	}
	operation, known := operations[asked.Do]
	if !known {
		return fmt.Errorf("unknown operation %q", asked.Do)
	}
	answer, err := operation(asked)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func send(asked request) ([]seen, error) {
	sender, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		producer.WithGroupName(asked.Group),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	if err != nil {
		return nil, err
	}
	if err := sender.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = sender.Shutdown() }()
	answers := []seen{}
	for _, one := range asked.Messages {
		message := primitive.NewMessage(asked.Topic, one.Body)
		message.WithTag(one.Tags)
		message.WithKeys([]string{one.Keys})
		for name, value := range one.Properties {
			message.WithProperty(name, value)
		}
		result, err := sender.SendSync(context.Background(), message)
		if err != nil {
			return nil, err
		}
		status := "SEND_OK"
		if result.Status != primitive.SendOK {
			status = fmt.Sprint(result.Status)
		}
		answers = append(answers, seen{
			Status: status, MsgID: result.MsgID, OffsetMsgID: result.OffsetMsgID,
			Broker: result.MessageQueue.BrokerName, Queue: result.MessageQueue.QueueId,
			Offset: result.QueueOffset,
		})
	}
	return answers, nil
}

func shown(message *primitive.MessageExt) seen {
	return seen{
		MsgID: message.MsgId, OffsetMsgID: message.OffsetMsgId,
		Broker: message.Queue.BrokerName, Queue: message.Queue.QueueId,
		Offset: message.QueueOffset, Body: message.Body, Tags: message.GetTags(),
		Keys: message.GetKeys(), Properties: message.GetProperties(),
	}
}

func consume(asked request) ([]seen, error) {
	reader, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		consumer.WithGroupName(asked.Group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	var lock sync.Mutex
	came := []seen{}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: asked.Tags}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range messages {
			came = append(came, shown(message))
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := reader.Subscribe(asked.Topic, selector, take); err != nil {
		return nil, err
	}
	if err := reader.Start(); err != nil {
		return nil, err
	}
	wait(asked, func() int { lock.Lock(); defer lock.Unlock(); return len(came) })
	// Shutting down commits what was consumed.
	err = reader.Shutdown()
	lock.Lock()
	defer lock.Unlock()
	return came, err
}

func wait(asked request, count func() int) {
	end := time.Now().Add(time.Duration(asked.Seconds) * time.Second)
	for count() < asked.Count && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
}

func pull(asked request) ([]seen, error) {
	reader, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		consumer.WithGroupName(asked.Group),
	)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: asked.Tags}
	if err := reader.Subscribe(asked.Topic, selector); err != nil {
		return nil, err
	}
	if err := reader.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = reader.Shutdown() }()
	came := []seen{}
	for id := 0; id < asked.Queues; id++ {
		queue := &primitive.MessageQueue{Topic: asked.Topic, BrokerName: asked.Broker, QueueId: id}
		for offset := int64(0); ; {
			result, err := reader.PullFrom(context.Background(), queue, offset, 2)
			if err != nil {
				return nil, err
			}
			if result.Status != primitive.PullFound {
				break
			}
			for _, message := range result.GetMessageExts() {
				came = append(came, shown(message))
			}
			offset = result.NextBeginOffset
			if offset >= result.MaxOffset {
				break
			}
		}
	}
	return came, nil
}
